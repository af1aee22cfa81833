"""The federation: server, schedules, simulation."""

from fedvi.federation.coordinator import Coordinator, ServerState, init_server, server_step
from fedvi.federation.result import Checkpoint, History, Result
from fedvi.federation.schedule import (
    Asynchronous,
    EventDriven,
    Paced,
    RoundRobin,
    Schedule,
    Synchronous,
    Turn,
)
from fedvi.federation.simulate import simulate, simulate_all

__all__ = [
    "Asynchronous",
    "Checkpoint",
    "Coordinator",
    "EventDriven",
    "History",
    "Paced",
    "Result",
    "RoundRobin",
    "Schedule",
    "ServerState",
    "Synchronous",
    "Turn",
    "init_server",
    "server_step",
    "simulate",
    "simulate_all",
]

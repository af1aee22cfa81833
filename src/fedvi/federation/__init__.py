"""The federation: server, schedules, simulation, and the real thing over an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedvi.lazy import lazily

if TYPE_CHECKING:
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
    from fedvi.federation.simulation import simulate, simulate_all

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

_HOMES = ("schedule", "result", "coordinator", "simulation")
"""Where the names live. The engine's long-lived processes use none of them, and so do without JAX."""

__getattr__, __dir__ = lazily("fedvi.federation", _HOMES, __all__)

"""The federation: server, schedules, simulation, and the real thing over an engine."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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

_HOMES = ("schedule", "result", "coordinator", "simulate")
"""Where the names live."""


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: the engine's long-lived processes do without JAX."""
    if name in __all__:
        for home in _HOMES:
            module = importlib.import_module(f"fedvi.federation.{home}")
            if hasattr(module, name):
                globals()[name] = getattr(module, name)
                return globals()[name]
    raise AttributeError(f"module 'fedvi.federation' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

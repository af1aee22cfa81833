"""What a simulation returns, and how it is saved and continued.

A `Checkpoint` is the whole state of a run as plain arrays, with a description of the settings that it belongs to. It
is one `.npz` file (arrays and JSON, never pickle), written to a temporary name and renamed, so that a crash leaves the
old file or the new one. `describe` writes settings as text, which is compared before a run goes on.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, TypeVar

import numpy as np

from fedvi.compiling import jax, jnp
from fedvi.errors import ResumeError
from fedvi.families.base import GaussianFamily
from fedvi.files import replacing
from fedvi.inference.reading.base import NEWTON_LIMIT, in_words
from fedvi.inference.update import ClientState
from fedvi.privacy.ledger.statement import SIMULATION, Spent
from fedvi.simulation.clients import ClientBudgets, digest
from fedvi.simulation.schedules import PlannedTurn

T = TypeVar("T")

FORMAT = 1


Record = dict[str, float]
"""One measurement.

communications, time: when it was taken.
repairs: negative precisions set to zero so far.
change: KL(q || q of the record before) in nats: it goes to zero as the run converges.
And the scores on the test rows, and what the caller measured.
"""


@dataclasses.dataclass(frozen=True)
class History:
    """What was measured along a run, and who communicated when.

    budgets: what each update cost in privacy; None if nothing was private.
    """

    records: tuple[Record, ...]
    turns: tuple[PlannedTurn, ...]
    budgets: ClientBudgets | None = None

    def __repr__(self) -> str:
        last = {name: f"{value:.4g}" for name, value in self.records[-1].items()} if self.records else {}
        shown = ", ".join(f"{name} {value}" for name, value in last.items())
        return f"History({len(self.turns)} updates, {len(self.records)} records; last: {shown})"

    def __getitem__(self, name: str) -> np.ndarray:
        """Return one measured quantity over all records that have it, such as `history["accuracy"]`.

        `history["epsilon"]` is the largest epsilon that any client had spent.
        """
        if name == "epsilon" and self.budgets is not None:
            return np.max([self.epsilon(client) for client in self.budgets.names], axis=0)
        values = [record[name] for record in self.records if name in record]
        if not values:
            raise KeyError(f"{name!r}; measured were {', '.join(self.records[-1])}")
        return np.array(values)

    def updates(self, client: int) -> np.ndarray:
        """Return how many updates client number `client` had made at each record."""
        made = np.cumsum([0, *(turn.client == client for turn in self.turns)])
        return made[[int(record["communications"]) for record in self.records]]

    def epsilon(self, client: str) -> np.ndarray:
        """Return what the client had spent at each record."""
        if self.budgets is None:
            raise KeyError("epsilon: nothing in this run was private")
        index = self.budgets.names.index(client)
        return np.array([self.budgets.epsilon(index, int(made)) for made in self.updates(index)])


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A run's state after so many communications, from which `simulate(..., resume=...)` goes on bit for bit."""

    communications: int
    leaves: tuple[np.ndarray, ...]
    records: tuple[Record, ...]
    settings: dict[str, Any]

    def __repr__(self) -> str:
        return f"Checkpoint(after {self.communications} communications)"

    def restore(self, fresh: T, settings: dict[str, Any]) -> T:
        """Return the saved state in the shape of `fresh`, or raise `ResumeError` if the settings differ."""
        for name, value in settings.items():
            if self.settings.get(name) != value:
                raise ResumeError(
                    f"The saved run has {name} = {self.settings.get(name)}, this one has {name} = {value}. "
                    "Resume with the same settings, or start anew."
                )
        leaves, structure = jax.tree.flatten(fresh)
        if [leaf.shape for leaf in leaves] != [saved.shape for saved in self.leaves]:
            raise ResumeError(
                "The saved run's arrays do not fit this run, though its settings do: the file is damaged."
            )
        restored = [jnp.asarray(saved, leaf.dtype) for saved, leaf in zip(self.leaves, leaves, strict=True)]
        return jax.tree.unflatten(structure, restored)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the checkpoint to one file, atomically."""
        path = Path(path)
        header = {
            "format": FORMAT,
            "label": SIMULATION,
            "communications": self.communications,
            "settings": self.settings,
            "records": self.records,
        }
        arrays = {f"leaf_{index}": leaf for index, leaf in enumerate(self.leaves)}
        with replacing(path) as file:
            np.savez(file, allow_pickle=False, header=np.array(json.dumps(header)), **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """Read a checkpoint, or raise `ResumeError` if the file is not one."""
        try:
            with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
                header = json.loads(str(file["header"]))
                leaves = tuple(file[f"leaf_{index}"] for index in range(len(file.files) - 1))
        except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ResumeError(f"Cannot read {os.fspath(path)!r} as a fedvi checkpoint: {error}") from error
        if header.get("format") != FORMAT:
            raise ResumeError(f"Expected checkpoint format {FORMAT}, got {header.get('format')}.")
        return cls(header["communications"], leaves, tuple(header["records"]), header["settings"])


@dataclasses.dataclass(frozen=True)
class Result:
    """What a simulation returns.

    posterior: the final q.
    history: measurements along the way.
    clients: every client's final state, by name. In a real federation these never leave the clients.
    checkpoint: save it with `checkpoint.save(path)`, go on with `simulate(..., resume=path)`.
    asked: questions and what was read out of the answers, if the algorithm is by questions (`NoiseAwarePVI`).
    notes: what a reader of the posterior has to know.
    decrement: a function that says how far q is from its optimum (`fedvi.inference.arrival`); None with privacy.
    """

    posterior: GaussianFamily
    history: History
    clients: dict[str, ClientState]
    checkpoint: Checkpoint
    asked: Any = None
    notes: tuple[str, ...] = ()
    decrement: Callable[[], float] | None = None

    def __repr__(self) -> str:
        posterior = f"{type(self.posterior).__name__} over {self.posterior.dim} parameters"
        return f"Result({posterior}, {len(self.clients)} clients, {self.history!r})"

    @functools.cached_property
    def arrived(self) -> tuple[float, float] | None:
        """How far the fit is from where it should be, and the limit; None if nobody knows.

        By questions, what their answers say. Else, without privacy, a Newton step in standard deviations: one pass over
        all rows, made when it is asked for.
        """
        if self.asked:
            return float(self.asked.arrived), float(self.asked.limit)
        return None if self.decrement is None else (self.decrement(), NEWTON_LIMIT)

    @property
    def converged(self) -> bool | None:
        """Whether the fit has arrived where it should be; None if nobody knows: with privacy, without questions."""
        return None if self.arrived is None else self.arrived[0] <= self.arrived[1]

    @property
    def convergence(self) -> str:
        """Whether the fit has arrived, in plain words."""
        if self.arrived is None:
            return "Not known whether it has arrived: private releases without questions do not tell."
        return in_words(*self.arrived, noisy=self.history.budgets is not None)

    @property
    def privacy(self) -> dict[str, Spent]:
        """What every client spent, by name; empty if nothing was private. Computed when asked for."""
        budgets = self.history.budgets
        if budgets is None:
            return {}
        made = {name: int(state.sequence) for name, state in self.clients.items()}
        return {name: budgets.spent(index, made[name]) for index, name in enumerate(budgets.names)}

    @property
    def statement(self) -> str:
        """What was promised, in plain words, and that a simulation keeps no promise."""
        spent = [part.statement(f"client {name!r}") for name, part in self.privacy.items()]
        return "\n".join([SIMULATION, *spent] if spent else ["simulation: nothing accounted, not private"])


def describe(value: Any) -> str:
    """Return settings as text that is the same in every process, and differs where behaviour may differ.

    Arrays go by a digest; users' functions by their name and a digest of their code and what they close over.

    >>> describe({"a": (1, 2.5)})
    'dict(a=[1, 2.5])'
    """
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return repr(value.item()) if value.ndim == 0 else f"{value.dtype}{list(value.shape)} {digest(value)}"
    if isinstance(value, functools.partial):
        return f"partial({describe(value.func)}, {describe(value.args)}, {describe(value.keywords)})"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(describe, value))}]"
    if hasattr(value, "__wrapped__"):
        return describe(value.__wrapped__)
    if isinstance(value, FunctionType):
        return _function(value)
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif isinstance(value, dict):
        fields = value
    elif value.__class__.__repr__ is object.__repr__:
        fields = getattr(value, "__dict__", {})
    else:
        return repr(value)
    return f"{type(value).__name__}({', '.join(f'{name}={describe(field)}' for name, field in fields.items())})"


def _function(function: FunctionType) -> str:
    name = f"{function.__module__}.{function.__qualname__}"
    if name.startswith(("fedvi.", "optax.")):
        return name
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    behaviour = _code(function.__code__) + describe([cells, function.__defaults__, function.__kwdefaults__])
    return f"{name} {hashlib.sha256(behaviour.encode()).hexdigest()[:8]}"


def _code(code: CodeType) -> str:
    constants = [_code(each) if isinstance(each, CodeType) else describe(each) for each in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"

"""Plain values and objects: inverse of each other, mistakes named, and nothing foreign imported unasked."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optax
import pytest

from fedvi import PVI, Budget, LinearRegression, LogisticRegression, NoiseAwarePVI
from fedvi.config import OWN, PLACES, ROLES, build, fill, find, plain, search
from fedvi.datasets import ByColumn, DirichletLabels, PaperPartition
from fedvi.errors import InputError
from fedvi.inference import CentralisedVI, Committee, GradientSteps
from fedvi.models import MonteCarlo
from fedvi.privacy import ClientLevel, FullBatchGaussian
from fedvi.simulation import EventDriven, Paced

PARTS = {*ROLES["column"].kinds, *ROLES["target"].kinds}
NEEDS_MORE = {"PaperPartition", "ByColumn", "Npz", "Budget", "PublishedRule", "CustomModel", *ROLES["family"].kinds}


def as_text(value: Any) -> str:
    return json.dumps(plain(value), sort_keys=True)


def test_every_kind_can_be_built_with_its_defaults_or_says_what_is_missing() -> None:
    for name, role in ROLES.items():
        for kind in role.kinds:
            if kind in NEEDS_MORE | PARTS:
                with pytest.raises(InputError, match=r"Expected here\.\w+, got nothing"):
                    build(kind, name, "here")
            else:
                made = build(kind, name, "here")
                assert as_text(build(plain(made), name)) == as_text(made)


@pytest.mark.parametrize(
    ("role", "value"),
    [
        ("algorithm", PVI(GradientSteps(7, 0.3, FullBatchGaussian(None, 1.5), optax.adam), 0.25)),
        ("algorithm", PVI(client_level=ClientLevel(3.0, 2.0))),
        ("algorithm", Committee(prior="split")),
        ("algorithm", CentralisedVI()),
        ("algorithm", NoiseAwarePVI()),
        ("model", LogisticRegression(MonteCarlo(5), "exact")),
        ("model", LinearRegression(0.1)),
        ("schedule", Paced()),
        ("schedule", EventDriven(latency=2.0)),
        ("privacy", Budget(0.5, 1e-6, "rdp")),
        ("partition", PaperPartition(0.7, -3.0)),
        ("partition", DirichletLabels(3, 0.1)),
        ("partition", ByColumn("town", 3)),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_build_is_the_inverse_of_plain(role: str, value: Any) -> None:
    again = build(json.loads(as_text(value)), role)
    assert type(again) is type(value)
    assert repr(again) == repr(value)
    assert as_text(again) == as_text(value)


def test_plain_values_hold_every_default_so_that_another_default_is_seen() -> None:
    assert plain(PVI())["solver"] == {
        "kind": "GradientSteps",
        "steps": 20,
        "learning_rate": 2.0,
        "mechanism": {"kind": "Minibatch", "minimum": 100, "fraction": 0.0},
        "optimizer": {"kind": "adagrad"},
    }


def test_what_no_file_can_name_is_refused() -> None:
    with pytest.raises(InputError, match="at the top of a module"):
        plain(GradientSteps(optimizer=lambda rate: optax.sgd(rate)))
    with pytest.raises(InputError, match="plain value"):
        plain(object())


MISTAKES = [
    (
        "model",
        "Logistic",
        "Unknown value 'Logistic' of model.kind; allowed: LogisticRegression, .*'LogisticRegression'",
    ),
    ("model", "Paced", "Unknown value 'Paced' of model.kind; allowed: LogisticRegression"),
    ("model", "fedvi.simulation.schedules:Paced", "model.kind to be a model, a class with the method .*which is none"),
    ("optimizer", "fedvi.simulation.schedules:Paced", "optimizer.kind to be an optimiser.*which is none"),
    ("optimizer", {"kind": "adam", "b1": 1}, "Unknown key optimizer.b1"),
    ("schedule", "fedvi.simulation.schedules:Pacd", "Expected 'Pacd' in the module .*Did you mean 'Paced'"),
    ("schedule", "no_such_module:Own", "Cannot import 'no_such_module' for schedule.kind"),
    ("schedule", "os:sys tem", "Unknown value 'os:sys tem' of schedule.kind"),
    ("schedule", {"kind": 3}, "Unknown value 3 of schedule.kind"),
    ("schedule", {"kind": ["Paced"]}, "Unknown value .* of schedule.kind"),
    ("algorithm", {"kind": "PVI", "solver": {"steps": 3}}, "Expected algorithm.solver.kind to be one of GradientSteps"),
    (
        "algorithm",
        {"kind": "PVI", "client_level": {"kind": "Minibatch"}},
        "Unknown value 'Minibatch' of .*client_level",
    ),
]


@pytest.mark.parametrize(("role", "table", "message"), MISTAKES, ids=lambda value: str(value)[:30])
def test_mistakes_are_named(role: str, table: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(table, role)


# Own classes


OWN_SCHEDULE = """
from pathlib import Path
from fedvi.pytree import pytree, static
from fedvi.simulation import Turn

Path(__file__).with_name("imported").touch()

@pytree
class FirstOnly:
    client: int = static(default=0)

    def turns(self, rows, max_updates, rng):
        for number in range(int(max_updates[self.client])):
            yield Turn(self.client, number + 1.0, (self.client,))

class Plain:
    def turns(self, rows, max_updates, rng):
        return iter(())
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a module that leaves a file when it is imported."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"own_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(OWN_SCHEDULE)
    search(tmp_path)
    return name


def test_own_classes_are_found_by_module_and_name(module: str) -> None:
    made = build({"kind": f"{module}:FirstOnly", "client": 2}, "schedule")
    assert plain(made) == {"kind": f"{module}:FirstOnly", "client": 2}
    with pytest.raises(InputError, match=r"Unknown key schedule\.clint"):
        build({"kind": f"{module}:FirstOnly", "clint": 2}, "schedule")
    with pytest.raises(InputError, match="to be a model"):
        build(f"{module}:FirstOnly", "model")
    with pytest.raises(InputError, match="to be a dataclass"):
        build(f"{module}:Plain", "schedule")


@pytest.mark.parametrize("allow", [(), ("other:FirstOnly",), ("{module}:Other", "{module}")])
@pytest.mark.parametrize("nested", [False, True])
def test_what_is_not_allowed_is_refused_before_it_is_imported(
    module: str, tmp_path: Path, allow: tuple[str, ...], nested: bool
) -> None:
    named = [each.format(module=module) for each in allow]
    table: Any = f"{module}:FirstOnly"
    role, table = ("algorithm", {"kind": "PVI", "solver": {"kind": table}}) if nested else ("schedule", table)
    with pytest.raises(InputError, match=r"none of fedvi's own kinds"):
        build(table, role, allow=named)
    assert module not in sys.modules
    assert not (tmp_path / "imported").exists()
    assert build(f"{module}:FirstOnly", "schedule", allow=[f"{module}:FirstOnly"]).client == 0
    assert (tmp_path / "imported").exists()  # the mutant without `allow` would have left it before


@pytest.mark.parametrize("role", [*ROLES, ""])
@pytest.mark.parametrize("kind", ["os:system", "subprocess:Popen", "fedvi.config:search", "fedvi.cli.main:app"])
def test_nothing_but_kinds_of_fedvi_can_be_named_by_others(role: str, kind: str) -> None:
    """Not every name in fedvi is a kind: only what the list says."""
    with pytest.raises(InputError, match="Refused"):
        find(kind, role, allow=())
    with pytest.raises(InputError, match="Refused"):
        build({"kind": "GradientSteps", "optimizer": {"kind": kind}}, "solver", allow=())


def test_own_kinds_of_fedvi_are_always_allowed() -> None:
    for name, role in ROLES.items():
        for kind, place in role.kinds.items():
            assert find(kind, name, allow=()) is find(place, name, allow=())
    assert len(set(OWN.values())) == len(OWN)
    assert len(PLACES) == sum(len(role.kinds) for role in ROLES.values())  # no class has two kinds
    assert len(PLACES) == len(OWN) + 2  # a column and a target may be a number or a category


# Dataclasses that code names


@dataclass(frozen=True)
class Some:
    number: int
    share: float = 0.5
    names: tuple[str, ...] = ()
    folder: Path | None = None
    given: str = ""


def test_dataclasses_are_filled_from_exactly_their_fields() -> None:
    assert fill(Some, {"number": 3, "share": 1, "names": ["a"], "folder": "x"}, given="g") == Some(
        3, 1.0, ("a",), Path("x"), "g"
    )
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({}, "Expected there.number, got nothing"),
        ({"number": 1, "shares": 1}, "Unknown key there.shares; allowed: number, share, .*Did you mean 'share'"),
        ({"number": "3"}, "there.number = '3': Expected int, got str"),
        ({"number": True}, "there.number = True: Expected int, got bool"),
        ({"number": 1e3}, "there.number = 1000.0: Expected int, got float"),
        ({"number": 1, "names": ["a", 3]}, r"there.names = \['a', 3\]: Expected str, got int"),
        ({"number": 1, "given": "x"}, "Unknown key there.given"),
    ]
    for table, message in mistakes:
        with pytest.raises(InputError, match=message):
            fill(Some, table, "there", given="")

"""The file of a federation: what is written comes back, what is wrong is named, and what is agreed on counts."""

from __future__ import annotations

import dataclasses
import math
import stat
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvi.errors import InputError
from fedvi.federation import description as projects
from fedvi.federation.description import Description
from fedvi.federation.names import HOST, RESERVED
from fedvi.federation.store.turns import Start, StoppingRule
from fedvi.tables import BinaryTarget, Number, NumberTarget, Schema
from small_federation import SCHEMA

names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True).filter(lambda name: name not in RESERVED)
hosts = st.from_regex(HOST, fullmatch=True).filter(lambda host: len(host) < 100)
ports = st.just("") | st.integers(1, 65535).map(":{}".format)
positives = st.floats(1e-6, 1e6)
rules = st.builds(StoppingRule, st.floats(0, 1000))
starts = st.builds(Start, st.just(1), st.floats(10, 1e6))
some_projects = st.builds(
    Description,
    name=names,
    sites=st.lists(names, min_size=1, max_size=6, unique=True).map(tuple),
    schema=st.just(SCHEMA),
    rows=st.integers(100, 10**7),
    url=st.just("")
    | st.builds("https://{}{}{}".format, hosts, ports, st.from_regex(r"(/[a-z.-]{0,9})?", fullmatch=True)),
    tls=st.sampled_from(["own", "system"]) | st.from_regex(r"[0-9a-f]{64}", fullmatch=True),
    reserve=st.integers(0, 8),
    updates=st.none() | st.integers(20, 1000),
    prior_sd=st.none() | st.floats(0.003, 1e4),
    priors=st.dictionaries(st.sampled_from(["a", "(intercept)"]), st.tuples(st.floats(-5, 5), st.floats(0.01, 9))),
    epsilon=st.floats(0.1, 50) | st.integers(1, 50),
    delta=st.none() | st.floats(1e-8, 0.5),
    start=starts,
    stop=rules,
    identity=st.text(max_size=20),
)

CONTENT: dict[str, Any] = {
    "name": "trial",
    "sites": ["north", "south"],
    "schema": "schema.toml",
    "training": {"rows": 400},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    SCHEMA.save(tmp_path / "schema.toml")
    return tmp_path


def loaded(folder: Path, content: Any) -> Description:
    text = content if isinstance(content, str) else tomli_w.dumps(content)
    (folder / "federation.toml").write_text(text, encoding="utf-8")
    return Description.load(folder)


OPEN: dict[str, Any] = {"updates": None, "moments": None, "covariance": "auto"}
"""What a plan chooses by itself."""


@settings(max_examples=30)
@given(some_projects)
def test_a_project_survives_its_text_in_which_its_plan_is_fixed(description: Description) -> None:
    back = Description.from_text(description.to_text())
    assert dataclasses.replace(back, **OPEN) == dataclasses.replace(description, **OPEN)
    assert (back.updates, back.moments, back.covariance) == (back.plan.questions, back.plan.moments, "full")
    assert back.plan == description.plan
    assert back.digest == description.digest
    assert back.to_text() == description.to_text()
    assert Description.from_text(back.to_text()) == back


@settings(max_examples=30)
@given(some_projects)
def test_a_project_survives_its_folder(tmp_path_factory: pytest.TempPathFactory, description: Description) -> None:
    folder = tmp_path_factory.mktemp("description") / "new"
    description.save(folder)
    assert Description.load(folder) == Description.load(folder / projects.FILE)
    assert dataclasses.replace(Description.load(folder), **OPEN) == dataclasses.replace(description, **OPEN)
    assert Description.load(folder).digest == description.digest


def test_defaults_are_those_of_the_class(folder: Path) -> None:
    assert loaded(folder, CONTENT) == Description("trial", ("north", "south"), SCHEMA, 400)


@pytest.mark.parametrize(("wait_for", "found"), [(2, 2), (["south", "north"], ("south", "north"))])
def test_who_is_waited_for_is_a_number_or_a_list(wait_for: Any, found: Any, folder: Path) -> None:
    made = loaded(folder, {**CONTENT, "start": {"wait_for": wait_for, "patience": 30}})
    assert made.start == Start(found, 30.0) == Description.from_text(made.to_text()).start


def test_a_site_that_is_added_later_does_not_change_the_plan() -> None:
    many = dataclasses.replace(TRIAL, sites=tuple(f"site-{number}" for number in range(40)))
    assert many.digest == TRIAL.digest
    fresh = dataclasses.replace(many, **OPEN)
    assert fresh.plan != TRIAL.plan  # of so many sites it would be another


def test_a_byte_order_mark_does_no_harm(folder: Path) -> None:
    assert loaded(folder, "\ufeff" + tomli_w.dumps(CONTENT)).name == "trial"


CHANGED: list[tuple[str, dict[str, Any]]] = [
    ("nmae", {"nmae": "x"}),
    ("trainnig", {"trainnig": {"rows": 3}}),
    ("privacy.epsilom", {"privacy": {"epsilom": 1.0}}),
    ("training.row", {"training": {"rows": 10, "row": 10}}),
    ("training.rows", {"training": {"updates": 10}}),
    ("training.rows", {"training": {"rows": "many"}}),
    ("training.rows", {"training": {"rows": True}}),
    ("training.rows", {"training": {"rows": 1e3}}),
    ("rows", {"training": {"rows": 1}}),
    ("updates", {"training": {"rows": 100, "updates": 0}}),
    ("url", {"coordinator": {"url": "https://localhost:0"}}),
    ("url", {"coordinator": {"url": "https://localhost:65536"}}),
    ("url", {"coordinator": {"url": "http://localhost"}}),
    ("url", {"coordinator": {"url": "https://user:secret@localhost"}}),
    ("url", {"coordinator": {"url": "https://localhost/?site=north"}}),
    ("coordinator.url", {"coordinator": {"url": 1}}),
    ("tls", {"coordinator": {"tls": "none"}}),
    ("tls", {"coordinator": {"tls": "A" * 64}}),
    ("coordinator.host", {"coordinator": {"host": "localhost"}}),
    ("plan.reserve", {"plan": {"reserve": -1}}),
    ("plan.reserve", {"plan": {"reserve": 9}, "training": {"rows": 400, "updates": 10}}),
    ("plan.updates", {"plan": {"updates": 10}}),
    ("epsilon", {"privacy": {"epsilon": 0}}),
    ("epsilon", {"privacy": {"epsilon": -1.0}}),
    ("epsilon", {"privacy": {"epsilon": math.nan}}),
    ("epsilon", {"privacy": {"epsilon": math.inf}}),
    ("delta", {"privacy": {"delta": 0}}),
    ("delta", {"privacy": {"delta": 1.5}}),
    ("delta", {"privacy": {"delta": math.nan}}),
    ("prior_sd", {"model": {"prior_sd": 0.0}}),
    ("prior_sd", {"model": {"prior_sd": math.inf}}),
    ("prior_sd", {"model": {"prior_sd": 1e13}}),
    ("prior_variance", {"model": {"prior_variance": 1.0}}),
    ("priors", {"model": {"priors": {"a": 1.0}}}),
    ("prior of a", {"model": {"priors": {"a": [0.0, 0.0]}}}),
    ("the name of a column or a feature, got 'c'", {"model": {"priors": {"c": [0.0, 1.0]}}}),
    ("model.kind", {"model": {"kind": "linear"}}),
    ("model.kind", {"model": {"kind": 3}}),
    ("updates", {"training": {"rows": 100, "updates": 1}}),
    ("updates", {"training": {"rows": 100, "updates": 1001}}),
    ("moments", {"training": {"rows": 100, "moments": 0}}),
    ("covariance", {"training": {"rows": 100, "covariance": "half"}}),
    ("start.wait_for", {"start": {"wait_for": 0}}),
    ("start.wait_for", {"start": {"wait_for": 3}}),
    ("start.wait_for", {"start": {"wait_for": 1.5}}),
    ("west", {"start": {"wait_for": ["north", "west"]}}),
    ("start.patience", {"start": {"patience": 1.0}}),
    ("start.impatience", {"start": {"impatience": 1.0}}),
    ("stop.change", {"stop": {"change": 0.1}}),
    ("stop.hours", {"stop": {"hours": math.inf}}),
    ("name", {"name": "No Spaces"}),
    ("name", {"name": ""}),
    ("name", {"name": "a" * 64}),
    ("name", {"name": "two\nlines"}),
    ("name", {"name": 5}),
    ("site", {"sites": []}),
    ("site", {"sites": ["north", "north"]}),
    ("site", {"sites": ["North"]}),
    ("site", {"sites": ["all"]}),
    ("site", {"sites": ["coordinator"]}),
    ("site", {"sites": ["north.1"]}),
    ("site", {"sites": ["../north"]}),
    ("sites", {"sites": ["north", 3]}),
    ("sites", {"sites": "north"}),
    ("id", {"id": 7}),
    ("schema", {"schema": 7}),
    ("schema", {"schema": "elsewhere.toml"}),
    ("training", {"training": 5}),
    ("name", {"name": {"a": 1}}),
]


@pytest.mark.parametrize(("named", "change"), CHANGED, ids=[str(change) for _, change in CHANGED])
def test_what_is_wrong_is_named_in_one_line(named: str, change: dict[str, Any], folder: Path) -> None:
    with pytest.raises(InputError) as raised:
        loaded(folder, {**CONTENT, **change})
    message = str(raised.value)
    assert "\n" not in message
    assert str(folder / "federation.toml") in message
    assert named in message.removeprefix(str(folder))


@pytest.mark.parametrize("missing", CONTENT)
def test_what_is_missing_is_named(missing: str, folder: Path) -> None:
    with pytest.raises(InputError, match="rows" if missing == "training" else missing):
        loaded(folder, {key: value for key, value in CONTENT.items() if key != missing})


def test_a_file_that_cannot_be_read_is_one_line(folder: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        Description.load(folder / "nowhere.toml")
    for text in (b"name = ", b"\xff\xfe", b"[a]\n[a]", b"name = 1\nname = 2"):
        (folder / "federation.toml").write_bytes(text)
        with pytest.raises(InputError, match="Cannot read") as raised:
            Description.load(folder)
        assert "\n" not in str(raised.value)


TRIAL = Description.from_text(
    Description("trial", ("north", "south"), SCHEMA, 400, identity="one", prior_sd=2.0**0.5).to_text()
)
OTHER_SCHEMA = Schema((Number("a", -4, 4, 0, 2), Number("b", -4, 4, 0, 1)), BinaryTarget("y", ("no", "yes")))


@pytest.mark.parametrize(
    "change",
    [
        {"identity": "two"},
        {"name": "trials"},
        {"schema": OTHER_SCHEMA},
        {"schema": dataclasses.replace(SCHEMA, target=NumberTarget("y", -4, 4, 0, 1))},
        {"rows": 401},
        {"updates": 20},
        {"moments": 4},
        {"prior_sd": 2.1},
        {"prior_sd": None},
        {"priors": {"a": (0.0, 0.5)}},
        {"priors": {"a": (0.1, 2.0**0.5)}},
        {"epsilon": 1.5},
    ],
    ids=lambda change: next(iter(change)),
)
def test_sites_that_differ_in_what_they_must_agree_on_have_other_digests(change: dict[str, Any]) -> None:
    assert dataclasses.replace(TRIAL, **change).digest != TRIAL.digest


@pytest.mark.parametrize(
    "change",
    [
        {"sites": ("north",)},
        {"sites": ("south", "north", "east")},
        {"url": "https://elsewhere:9"},
        {"url": ""},
        {"tls": "system"},
        {"delta": 1e-6},
        {"stop": StoppingRule(3.0)},
        {"start": Start(1, 20.0)},
        {"epsilon": 1},
        {"prior_sd": np.float64(2.0**0.5)},
    ],
    ids=str,
)
def test_what_each_site_or_the_coordinator_decides_alone_does_not_change_the_digest(change: dict[str, Any]) -> None:
    changed = dataclasses.replace(TRIAL, **change)
    assert changed.digest == TRIAL.digest
    assert Description.from_text(changed.to_text()).digest == TRIAL.digest


def test_what_is_agreed_on_decides_all_that_a_release_depends_on() -> None:
    """Two projects with one digest have the same recipe; else sites could disagree without anybody noticing."""
    lonely = dataclasses.replace(TRIAL, sites=("east",), url="https://elsewhere:9", delta=1e-9, epsilon=1)
    one, other = TRIAL.spec, lonely.spec
    assert lonely.digest == TRIAL.digest
    assert repr((one.model, one.algorithm, one.updates)) == repr((other.model, other.algorithm, other.updates))
    assert (one.prior.precision == other.prior.precision).all()
    assert one.prior.precision[:2].tolist() == pytest.approx([0.01, 0.5])  # the intercept has its own
    assert lonely.plan == TRIAL.plan


def test_a_saved_project_holds_no_secret_and_is_readable_toml(tmp_path: Path) -> None:
    TRIAL.save(tmp_path)
    assert set(tomllib.loads((tmp_path / projects.FILE).read_text())) <= set(projects.KEYS)
    assert stat.S_ISREG((tmp_path / projects.SCHEMA_FILE).stat().st_mode)

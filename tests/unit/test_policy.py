"""A site does what its own policy allows: it refuses the rest before its rows are read, and imports nothing for it."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from fedvi import Fitted, fit
from fedvi.cli.join import _show_promise
from fedvi.errors import InputError
from fedvi.federation.description import FORMAT, Description
from fedvi.federation.invitation import Address
from fedvi.federation.policy import Policy
from fedvi.federation.settings import SiteSettings, save_address
from fedvi.fitting.from_federation import fitted_of
from fedvi.inference import spec
from fedvi.tables import BinaryTarget, Interaction, Number, Schema
from fedvi.tables.reading.chunk import NUMBER, Kind
from small_federation import ROWS, SCHEMA, description, open_coordinator, open_site, rows_of

OWN_MODEL = """
from pathlib import Path
from fedvi.models import LogisticRegression
from fedvi.pytree import pytree, static

Path(__file__).with_name("imported").touch()

@pytree
class Tempered(LogisticRegression):
    power: float = static(default=0.5)
"""


OWN_COLUMN = """
from dataclasses import dataclass
from pathlib import Path
from fedvi.tables import Number

Path(__file__).with_name("imported").touch()

@dataclass(frozen=True)
class Bent(Number):
    pass
"""


@dataclasses.dataclass(frozen=True)
class Place:
    """A site's folder with what its coordinator sent, a model of its own in it; and its people's folder with the model.

    folder: `fedvi site join` made it. files: where in it the coordinator's files are.
    """

    folder: Path
    own: Path
    kind: str
    federation: Description

    @property
    def files(self) -> Path:
        return self.settings().state.parent

    def imported(self) -> bool:
        return (self.own / "imported").exists()

    def settings(self, policy: Path | None = None) -> SiteSettings:
        return SiteSettings(self.folder, self.own / "rows.csv", self.own / "site.ledger", 1.0, policy=policy)

    def policy(self, content: str, name: str = "policy.toml") -> Policy:
        (self.own / name).write_text(content)
        return Policy.load(self.own / name)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = f"own_{tmp_path.name.replace('-', '_')}"
    folder, own, kind = tmp_path / "north", tmp_path / "own", f"{module}:Tempered"
    own.mkdir()
    (own / f"{module}.py").write_text(OWN_MODEL)
    made = Place(folder, own, kind, description(model={"kind": kind, "power": 0.25}))
    made.federation.save(made.files)
    return made


@pytest.mark.parametrize("content", [None, "", "kinds = []", 'kinds = ["other:Tempered"]'])
def test_a_federation_that_names_a_foreign_model_imports_nothing(place: Place, content: str | None) -> None:
    if content is not None:
        (place.own / "policy.toml").write_text(content)
    sys.path.append(str(place.own))  # it could be imported
    with pytest.raises(InputError, match=r"Refused model\.kind = .*policy file"):
        _ = place.settings().description
    assert not place.imported()


@pytest.mark.parametrize("given", [False, True])
def test_a_policy_allows_it_and_the_site_agrees_with_the_coordinator(place: Place, given: bool) -> None:
    path = place.own / ("rules.toml" if given else "policy.toml")
    path.write_text(f'kinds = ["{place.kind}"]')
    found = place.settings(path if given else None).description
    assert not place.imported()  # not even then, before it is needed
    assert found.spec.plain["model"]["power"] == 0.25
    assert found.digest == place.federation.digest
    assert found.digest != description().digest


def test_an_allowed_model_works_at_a_real_site_and_comes_back_from_its_file(place: Place, tmp_path: Path) -> None:
    (place.own / "policy.toml").write_text(f'kinds = ["{place.kind}"]')
    with (
        open_coordinator(tmp_path, place.settings().description) as server,
        open_site(tmp_path, place.settings().description) as client,
    ):
        for _ in range(2):  # ask for q, then release a factor
            request = client.request()
            assert request is not None
            client.receive(server.handle("north", request))
    again = open_coordinator(tmp_path, place.federation)
    with again:
        assert again.version == 1
        assert again.description.spec.plain == place.federation.spec.plain
        fitted_of(again).save(tmp_path / "own.fedvi")
    read = Fitted.load(tmp_path / "own.fedvi", kinds=[place.kind])
    assert type(read.model).__name__ == "Tempered"
    assert read.settings["spec"] == place.federation.spec.plain  # what all agreed on stands in the file


def test_a_federation_whose_schema_names_a_foreign_column_imports_nothing(place: Place) -> None:
    """Only what the site's policy names is built; the folder of what was sent is not even searched for it."""
    module = place.kind.replace("own_", "column_").split(":")[0]
    description().save(place.files)
    schema = place.files / "schema.toml"
    schema.write_text(schema.read_text().replace('"number"', f'"{module}:Bent"', 1))
    (schema.parent / f"{module}.py").write_text(OWN_COLUMN)
    (place.own / f"{module}.py").write_text(OWN_COLUMN)
    sys.path.append(str(place.own))  # it could be imported
    for content in ("", f'kinds = ["{place.kind}"]'):
        (place.own / "policy.toml").write_text(content)
        with pytest.raises(InputError, match=r"Refused columns\[1\] \(a\)\.kind = .*policy file"):
            _ = place.settings().description
    assert not place.imported()
    (place.own / "policy.toml").write_text(f'kinds = ["{module}:Bent"]')
    found = place.settings().description
    assert place.imported()
    assert not (schema.parent / "imported").exists()
    assert type(found.schema.columns[0]).__name__ == "Bent"
    assert found.digest != description().digest


def test_nothing_that_was_sent_is_ever_searched_for_modules(place: Place, tmp_path: Path) -> None:
    """JAX imports whatever `jax_plugins` it finds, so that a folder on the path is code that runs."""
    schema = place.files / "schema.toml"
    description().save(place.files)
    schema.write_text(schema.read_text().replace('"number"', '"fedvi.tables.numbers:Number"'))
    assert place.settings().description.sites == ("north", "south")
    assert not [entry for entry in sys.path if Path(entry).resolve().is_relative_to(tmp_path)]


@pytest.mark.parametrize("elsewhere", ["../schema.toml", "/shared/schema.toml", "other.toml"])
def test_a_federation_at_a_site_names_no_schema_but_its_own(place: Place, elsewhere: str) -> None:
    file = place.files / "federation.toml"
    file.write_text(file.read_text().replace('"schema.toml"', f'"{elsewhere}"'))
    with pytest.raises(InputError, match=r"Expected schema = 'schema\.toml'"):
        _ = place.settings().description


def test_a_policy_among_what_was_sent_is_refused(place: Place) -> None:
    (place.files / "policy.toml").write_text(f'kinds = ["{place.kind}"]')
    (place.own / "link.toml").symlink_to(place.files / "policy.toml")
    for given in (place.files / "policy.toml", place.own / "link.toml"):
        with pytest.raises(InputError, match=r"policy outside of .*north"):
            Policy.find(given, place.own / "site.ledger", place.folder)
    with pytest.raises(InputError, match=r"policy outside of"):
        Policy.find(None, place.files / "site.ledger", place.folder)
    assert not place.imported()


def test_the_policy_is_what_people_named_or_what_lies_beside_the_ledger(place: Place) -> None:
    def find(given: Path | None = None) -> Policy:
        return Policy.find(given, place.own / "site.ledger", place.folder)

    assert find() == Policy()
    place.policy("largest_epsilon = 2", "policy.toml")
    place.policy("largest_epsilon = 3", "rules.toml")
    assert find().largest_epsilon == 2.0
    assert find(place.own / "rules.toml").largest_epsilon == 3.0
    (place.own / "rules.toml").unlink()
    with pytest.raises(InputError, match=r"Cannot read .*rules\.toml"):  # a limit that is gone is no permission
        find(place.own / "rules.toml")
    (place.own / "policy.toml").unlink()
    (place.own / "policy.toml").symlink_to(place.own / "gone.toml")
    with pytest.raises(InputError, match=r"Cannot read .*policy\.toml|gone\.toml"):
        find()


MISTAKES = {
    "kinds = 3": "kinds = 3",
    "kinds = ['os']": "module:Class",
    "kinds = [3]": "kinds",
    "kinds =": "Cannot read",
    "kind = ['a:B']": "Unknown key kind; .*Did you mean 'kinds'",
    "largest_epsilom = 1": "Did you mean 'largest_epsilon'",
    "file = 'other.toml'": "Unknown key file",
    "models = ['logistik']": "Did you mean 'logistic'",
    "models = 'logistic'": "models = 'logistic': Expected array",
    "columns = ['a', '']": "columns without an empty name",
    "federations = ['']": "federations without an empty name",
    "largest_epsilon = -1": "0 < largest_epsilon, got -1",
    "largest_epsilon = 0": "0 < largest_epsilon",
    "largest_epsilon = nan": "0 < largest_epsilon, got nan",
    "largest_epsilon = inf": "0 < largest_epsilon, got inf",
    "largest_epsilon = '1'": "Expected float",
    "largest_epsilon = true": "Expected float",
    "largest_delta = 2": "largest_delta <= 1, got 2",
    "smallest_public_rows = 0": "whole number of at least 1",
    "smallest_public_rows = 1.5": "Expected int",
    "smallest_public_rows = -5": "whole number of at least 1",
    "ask_before_first_release = 1": "Expected bool",
}


@pytest.mark.parametrize("content", MISTAKES)
def test_policies_with_mistakes_are_refused(place: Place, content: str) -> None:
    with pytest.raises(InputError, match=rf"(?s)policy\.toml.*{MISTAKES[content]}"):
        place.policy(content)


REFUSED = {
    "federations = ['other', 'also']": r"federation 'trial' with the identity 'test'; federations: other, also",
    "models = ['linear']": "the model 'LogisticRegression'; models: linear",
    "models = ['student_t:StudentT']": "the model 'LogisticRegression'; models: student_t:StudentT",
    "columns = ['a', 'y']": "it reads 'b'; columns: a, y",
    "columns = ['a', 'b']": "it reads 'y'; columns: a, b",
    "columns = ['A', 'b', 'y']": "it reads 'a'",
    "largest_epsilon = 0.5": "epsilon 1; largest_epsilon: 0.5",
    "largest_delta = 1e-6": "delta 1e-05; largest_delta: 1e-06",
    "smallest_public_rows = 201": "200 public rows; smallest_public_rows: 201",
}
ALLOWED = (
    "",
    "federations = ['trial']",
    "federations = ['other', 'test']",
    "models = ['logistic']",
    "models = ['linear', 'LogisticRegression']",
    "models = ['fedvi.models:LogisticRegression']",
    "columns = ['y', 'b', 'a', 'unused']",
    "largest_epsilon = 1",
    "largest_delta = 1e-5",
    "smallest_public_rows = 200",
    "ask_before_first_release = true",
)


@pytest.mark.parametrize("content", REFUSED)
def test_every_limit_refuses_what_is_beyond_it_and_names_value_limit_file_and_remedy(
    place: Place, content: str
) -> None:
    policy = place.policy(content)
    with pytest.raises(InputError, match=REFUSED[content]) as caught:
        policy.check(description(), 1.0, 1e-5, ROWS)
    assert re.search(
        rf"policy {re.escape(str(policy.file))} refuses .*\. [A-Z].*, or change the policy\.$", str(caught.value)
    )


@pytest.mark.parametrize("content", ALLOWED)
def test_what_is_within_all_limits_is_allowed(place: Place, content: str) -> None:
    place.policy(content).check(description(), 1.0, 1e-5, ROWS)


def test_what_is_not_known_yet_is_checked_when_it_is(place: Place) -> None:
    policy = place.policy("largest_delta = 1e-6\nsmallest_public_rows = 1000")
    policy.check(description(), 1.0)
    for known in ((1e-5, None), (None, ROWS)):
        with pytest.raises(InputError, match="refuses"):
            policy.check(description(), 1.0, *known)


def test_a_model_of_ones_own_needs_both_its_name_and_the_permission_to_build_it(place: Place) -> None:
    for content, allowed in ((f"models = ['{place.kind}']", True), ("models = ['logistic', 'linear']", False)):
        policy = place.policy(f"{content}\nkinds = ['{place.kind}']")
        found = Description.load(place.files, policy.kinds)
        if allowed:
            policy.check(found, 1.0)
        else:
            with pytest.raises(InputError, match=rf"refuses the model '{place.kind}'; models: logistic, linear"):
                policy.check(found, 1.0)
    assert not place.imported()
    with pytest.raises(InputError, match=r"Refused model\.kind"):
        Description.load(place.files, place.policy(f"models = ['{place.kind}']").kinds)


@dataclasses.dataclass(frozen=True)
class Ratio(Number):
    """A column that reads a second one."""

    over: str = "c"

    @property
    def reads(self) -> dict[str, Kind]:
        return {self.name: NUMBER, self.over: NUMBER}


def test_all_columns_that_a_schema_reads_count_also_the_second_ones_of_own_columns(place: Place) -> None:
    columns = (Ratio("a", -4, 4, 0, 1), Number("b", -4, 4, 0, 1))
    schema = Schema(columns, BinaryTarget("y", ("no", "yes")), interactions=(Interaction(("a", "b")),))
    asking = dataclasses.replace(description(), schema=dataclasses.replace(schema, site_column="hospital"))
    with pytest.raises(InputError, match="it reads 'c'; columns: a, b, y"):
        place.policy("columns = ['a', 'b', 'y']").check(asking, 1.0)
    place.policy("columns = ['a', 'b', 'c', 'y']").check(asking, 1.0)  # a site's table is read without its site column


def test_people_see_what_the_policy_limits(place: Place) -> None:
    assert Policy().lines == ["No policy file limits what this site takes part in."]
    assert place.policy("kinds = []").lines == [f"The policy {place.own / 'policy.toml'} limits nothing."]
    content = "models = ['logistic', 'linear']\nlargest_epsilon = 1\nask_before_first_release = true"
    assert place.policy(content).lines == [
        f"The policy {place.own / 'policy.toml'} allows this:",
        "  models: logistic, linear",
        "  largest_epsilon: 1.0",
        "  ask_before_first_release: yes",
    ]


@pytest.mark.parametrize("name", ["federation.toml", "schema.toml"])
def test_what_was_sent_and_is_too_deep_to_be_read_is_refused_in_words(place: Place, name: str) -> None:
    (place.files / name).write_text("a = " + "[" * 100_000)
    with pytest.raises(InputError, match="Cannot read"):
        _ = place.settings().description


def test_no_word_of_a_coordinator_steers_the_terminal_on_which_people_read_the_promise(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as one that hides what is printed after it, or looks like a line of ours."""
    hostile = Schema(SCHEMA.columns, BinaryTarget("y", ("no", "yes\x1b[8m\nepsilon 0.01\u202e")))
    dataclasses.replace(description(), schema=hostile).save(place.files)
    save_address(place.folder, Address("", "", "f" * 32, "north", bytes(32)))
    (place.own / "rows.csv").write_text("a,b,y\n" + "1,2,no\n" * ROWS)
    settings = dataclasses.replace(place.settings(), link=place.own / "link")
    _show_promise(settings, settings.read(), forecast=False)
    said = capsys.readouterr().out
    assert "It predicts the probability of y = yes?[8m?epsilon 0.01?.\n" in said
    assert all(map(str.isprintable, said.splitlines()))
    assert "epsilon 1 at delta" in said


@pytest.mark.parametrize("content", ["largest_epsilon = 0.5", "columns = ['a']", "federations = ['other']"])
def test_a_site_refuses_before_its_table_is_read(place: Place, content: str) -> None:
    """There is no table at all: to look for it would be another error. When a site continues, it refuses again."""
    description().save(place.files)
    (place.own / "policy.toml").write_text(content)
    for use in (place.settings().read, place.settings().open):
        with pytest.raises(InputError, match=r"policy\.toml refuses"):
            use()


def test_settings_of_a_site_come_back(place: Place) -> None:
    for settings in (place.settings(), dataclasses.replace(place.settings(place.own / "p.toml"), accept=("moved",))):
        settings.save()
        assert SiteSettings.load(place.folder) == settings
    (place.files / "site.toml").write_text("data = 'a'\nledger = 'b'\nepsilom = 1.0")
    with pytest.raises(InputError, match=r"Unknown key epsilom.*'epsilon'.*Join again"):
        SiteSettings.load(place.folder)


def test_versions_with_other_defaults_do_not_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is hashed is resolved: the same file, read by a fedvi with other defaults, has another digest."""
    here = description().digest
    assert description().digest == here
    monkeypatch.setattr(spec, "INTERCEPT_VARIANCE", 50.0)
    assert description().digest != here


def test_federations_of_other_formats_are_refused(tmp_path: Path) -> None:
    description().save(tmp_path)
    text = (tmp_path / "federation.toml").read_text()
    for other in ("", f"format = {FORMAT - 1}\n", f"format = {FORMAT + 1}\n"):
        (tmp_path / "federation.toml").write_text(text.replace(f"format = {FORMAT}\n", other))
        with pytest.raises(InputError, match="made by another version of fedvi"):
            Description.load(tmp_path)


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    x, y = rows_of(0)
    table = pa.table({"a": x[:, 1], "b": x[:, 2], "y": np.where(y > 0, "yes", "no"), "site": ["north"] * len(y)})
    return fit(SCHEMA, table, site_column="site", questions=2)


def test_posterior_files_import_only_what_their_reader_allows(place: Place, tmp_path: Path, fitted: Fitted) -> None:
    sys.path.append(str(place.own))
    model = place.federation.spec.model
    dataclasses.replace(fitted, model=model).save(tmp_path / "own.fedvi")
    sys.modules.pop(place.kind.split(":")[0])
    (place.own / "imported").unlink()
    with pytest.raises(InputError, match=r"Refused model\.kind"):
        Fitted.load(tmp_path / "own.fedvi")
    assert not place.imported()
    again = Fitted.load(tmp_path / "own.fedvi", kinds=[place.kind])
    assert place.imported()
    assert repr(again.model) == repr(model)

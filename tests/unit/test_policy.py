"""A site builds what its own policy allows: names in a kit or a file of others import nothing."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from fedvi import Fitted, fit
from fedvi.errors import InputError
from fedvi.federation.description import Description
from fedvi.federation.invitation import make_federation, unpack_kit
from fedvi.federation.settings import FOLDER, SiteSettings
from fedvi.federation.transports.flare.workspace import write_workspace
from fedvi.fitting.from_federation import fitted_of
from fedvi.inference import spec
from small_federation import SCHEMA, description, open_coordinator, open_site, rows_of

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
    """A kit that names a model of its own, and the site's own folder with the file of that model."""

    kit: Path
    own: Path
    kind: str
    federation: Description

    def imported(self) -> bool:
        return (self.own / "imported").exists()

    def settings(self, policy: Path | None = None) -> SiteSettings:
        return SiteSettings(self.kit, self.own / "rows.csv", self.own / "site.ledger", 1.0, policy=policy)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = f"own_{tmp_path.name.replace('-', '_')}"
    kit, own, kind = tmp_path / "kit", tmp_path / "own", f"{module}:Tempered"
    own.mkdir()
    (own / f"{module}.py").write_text(OWN_MODEL)
    named = description(model={"kind": kind, "power": 0.25})
    named.save(kit / FOLDER)
    return Place(kit, own, kind, named)


@pytest.mark.parametrize("content", [None, "", "kinds = []", 'kinds = ["other:Tempered"]'])
def test_a_kit_that_names_a_foreign_model_imports_nothing(place: Place, content: str | None) -> None:
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


def test_a_kit_whose_schema_names_a_foreign_column_imports_nothing(place: Place) -> None:
    """Only what the site's policy names is built; the kit's own folder is not even searched for it."""
    module = place.kind.replace("own_", "column_").split(":")[0]
    description().save(place.kit / FOLDER)
    schema = place.kit / FOLDER / "schema.toml"
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


def test_nothing_in_a_kit_is_ever_searched_for_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX imports whatever `jax_plugins` it finds, so that a folder on the path is code that runs."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    make_federation(description(), tmp_path / "coordinator")
    kit = unpack_kit(tmp_path / "coordinator" / "kits" / "north.zip")
    schema = kit / FOLDER / "schema.toml"
    schema.write_text(schema.read_text().replace('"number"', '"fedvi.tables.numbers:Number"'))
    write_workspace(kit)
    settings = SiteSettings(kit, tmp_path / "rows.csv", tmp_path / "site.ledger", 1.0)
    assert settings.description.sites == ("north", "south")
    assert not [entry for entry in sys.path if Path(entry).resolve().is_relative_to(tmp_path)]


@pytest.mark.parametrize("elsewhere", ["../schema.toml", "/shared/schema.toml", "other.toml"])
def test_a_kit_names_no_schema_but_its_own(place: Place, elsewhere: str) -> None:
    file = place.kit / FOLDER / "federation.toml"
    file.write_text(file.read_text().replace('"schema.toml"', f'"{elsewhere}"'))
    with pytest.raises(InputError, match=r"Expected schema = 'schema\.toml' in a kit"):
        _ = place.settings().description


def test_a_policy_that_came_with_the_kit_is_refused(place: Place) -> None:
    (place.kit / "policy.toml").write_text(f'kinds = ["{place.kind}"]')
    with pytest.raises(InputError, match="outside of its kit"):
        _ = place.settings(place.kit / "policy.toml").description
    inside = dataclasses.replace(place.settings(), ledger=place.kit / "site.ledger")
    with pytest.raises(InputError, match="outside of its kit"):
        _ = inside.description
    assert not place.imported()


@pytest.mark.parametrize("content", ["kinds = 3", "kinds = ['os']", "kind = ['a:B']", "kinds = [3]", "kinds ="])
def test_policies_with_mistakes_are_refused(place: Place, content: str) -> None:
    (place.own / "policy.toml").write_text(content)
    with pytest.raises(InputError, match=r"policy\.toml"):
        _ = place.settings().description


def test_settings_of_a_site_come_back(place: Place) -> None:
    for settings in (place.settings(), dataclasses.replace(place.settings(place.own / "p.toml"), accept=("moved",))):
        settings.save()
        assert SiteSettings.load(place.kit) == settings
    (place.kit / FOLDER / "site.toml").write_text("data = 'a'\nledger = 'b'\nepsilom = 1.0")
    with pytest.raises(InputError, match=r"Unknown key epsilom.*'epsilon'.*Join again"):
        SiteSettings.load(place.kit)


def test_versions_with_other_defaults_do_not_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is hashed is resolved: the same file, read by a fedvi with other defaults, has another digest."""
    here = description().digest
    assert description().digest == here
    monkeypatch.setattr(spec, "INTERCEPT_VARIANCE", 50.0)
    assert description().digest != here


def test_federations_of_other_formats_are_refused(tmp_path: Path) -> None:
    description().save(tmp_path)
    text = (tmp_path / "federation.toml").read_text()
    for other in ("", "format = 3\n", "format = 5\n"):
        (tmp_path / "federation.toml").write_text(text.replace("format = 4\n", other))
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

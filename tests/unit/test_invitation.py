"""Making a federation larger: a site takes part when its kit is there, whatever was killed on the way."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from fedvi.errors import InputError
from fedvi.federation.coordinator_file import FILE, CoordinatorFile
from fedvi.federation.description import Description
from fedvi.federation.invitation import KITS, add_to_federation, make_federation
from small_federation import description


class Killed(BaseException):
    """The end of a process, after which nothing tidies up."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("federation") / "coordinator"
    make_federation(description(), made)
    return made


def names(folder: Path) -> tuple[str, ...]:
    with CoordinatorFile.open(folder / FILE) as store:
        return store.names


INSTANTS = [
    "os.replace",
    "shutil.move",
    "fedvi.federation.invitation._zip",
    "zipfile.ZipFile.write",
    "os.fsync",
    "shutil.rmtree",
    "fedvi.federation.description.Description.save",
    "fedvi.federation.coordinator_file.CoordinatorFile.add_site",
]


@pytest.mark.parametrize("instant", INSTANTS)
def test_a_site_whose_adding_was_killed_is_added_by_the_same_command(
    instant: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = f"west-{INSTANTS.index(instant)}"
    before = names(folder)

    def kill(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(instant, kill)
        with pytest.raises(Killed):
            add_to_federation(folder, site)
    assert names(folder) == before

    kit = add_to_federation(folder, site)
    assert names(folder) == Description.load(folder).sites == (*before, site)
    assert kit == folder / KITS / f"{site}.zip"
    assert kit.stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in kit.parent.glob(f"{site}*")) == [kit.name]
    with zipfile.ZipFile(kit) as archive:
        assert archive.testzip() is None
        assert {"startup/client.key", "startup/client.crt", "fedvi/federation.toml"} <= set(archive.namelist())
    with pytest.raises(InputError, match="takes part already"):
        add_to_federation(folder, site)

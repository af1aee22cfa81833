"""Files are written whole or not at all, and hashes are those that ledgers and schemas hold."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fedvi.errors import InputError
from fedvi.files import digest, fingerprint, new_folder, replacing, write


def test_a_file_is_the_old_one_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path, "old")
    with pytest.raises(RuntimeError, match="cut"), replacing(path) as file:  # noqa: PT012
        file.write(b"new, half of ")
        assert path.read_text() == "old"
        raise RuntimeError("power cut")
    assert path.read_text() == "old"
    with replacing(path) as file:
        file.write(b"new")
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["file"]


def test_a_private_file_is_its_owners_from_its_first_byte(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with replacing(path, private=True) as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_cannot_be_written_is_said_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Cannot write '.*file': No such file or directory"):
        write(tmp_path / "missing" / "file", "text")


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with pytest.raises(RuntimeError), new_folder(path) as unfinished:  # noqa: PT012
        (unfinished / "file").write_text("half")
        raise RuntimeError
    assert os.listdir(tmp_path) == []
    path.mkdir()
    with new_folder(path) as unfinished:
        (unfinished / "file").write_text("whole")
    assert (path / "file").read_text() == "whole"
    assert os.listdir(tmp_path) == ["folder"]


def test_digests_and_fingerprints_are_those_that_files_hold() -> None:
    values = {"b": [1, 2.5, None], "a": "é"}
    assert digest(values) == "84afbf1d4853005f9dd0c81cb1819b53ce86978340764c062160f6e8356665de"
    assert digest(values, compact=False) == "fc10ba9755cfc69ce6c336075dcaa7bec5e27a5e3b43810a5952cd761f259a45"
    assert digest({"a": "é", "b": [1, 2.5, None]}) == digest(values)
    assert fingerprint("00ff", "text") != fingerprint("01ff", "text")
    with pytest.raises(ValueError, match="JSON"):
        digest(float("nan"))

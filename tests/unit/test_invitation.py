"""Invitations: one line that lets one site join, and what a coordinator makes before it can give one out."""

from __future__ import annotations

import base64
import dataclasses
import shutil
import stat
import time
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from carried import public
from fedvi.errors import FileFailed, InputError, UnknownClient
from fedvi.federation.description import Description
from fedvi.federation.invitation import KEY_SIZE, PREFIX, Address, Invitation, is_line
from fedvi.federation.making import (
    CERTIFICATE,
    KEY,
    TLS_KEY,
    invite,
    make_federation,
    make_key,
    pin_of,
    pin_of_file,
    read_key,
    revoke,
)
from fedvi.federation.names import SITE
from fedvi.federation.store.file import FILE, CoordinatorFile
from small_federation import description

ADDRESS = Address("https://coordinator.hospital.org:8443", "ab" * 32, "f" * 32, "north", bytes(range(32)))
SEED = bytes(range(100, 132))
INVITATION = Invitation(ADDRESS, SEED, 2_000_000_000)
LINE = INVITATION.line()

keys = st.binary(min_size=KEY_SIZE, max_size=KEY_SIZE)
places = st.sampled_from(["", "https://a", "https://[::1]:1", "https://coordinator.hospital.org:65535/behind/nginx"])
pins = st.sampled_from(["system", "0" * 64, "ab" * 32])
sites = st.from_regex(SITE, fullmatch=True)
invitations = st.builds(
    Invitation,
    st.builds(Address, places, pins, st.text("0123456789abcdef", min_size=1, max_size=64), sites, keys),
    keys,
    st.integers(0, 2**40),
)


@given(invitations)
def test_an_invitation_survives_its_line(invitation: Invitation) -> None:
    line = invitation.line()
    assert Invitation.parse(line) == invitation
    assert line.startswith(PREFIX)
    assert line.isascii()
    assert not set(line) & set(" \n\t'\"$`\\!*?&|;<>()[]{}#~")  # nothing that a shell would change
    assert is_line(line)


def test_an_invitation_is_short_enough_to_be_pasted() -> None:
    assert len(LINE) < 400


@settings(max_examples=60)
@given(st.integers(1, 200), st.sampled_from(["\n", "\r\n", " ", "\t\n "]), st.sampled_from(["", '"', "'", "`"]))
def test_wrapped_lines_and_quotation_marks_do_no_harm(width: int, end: str, quote: str) -> None:
    wrapped = end.join(LINE[place : place + width] for place in range(0, len(LINE), width))
    assert Invitation.parse(f"\n {quote}{wrapped}{quote}\n") == INVITATION


def test_a_copy_that_was_cut_or_changed_is_noticed() -> None:
    for length in range(len(PREFIX), len(LINE)):
        with pytest.raises(InputError, match="not whole"):
            Invitation.parse(LINE[:length])
    for place in range(len(PREFIX), len(LINE)):
        for other in "A_-z=é.":
            changed = LINE[:place] + other + LINE[place + 1 :]
            try:
                assert Invitation.parse(changed) == INVITATION  # the last character has bits without a meaning
            except InputError as error:
                assert "not whole" in str(error)  # noqa: PT017 - either is right
    for wrong in (LINE + "A", LINE + LINE, LINE[: len(PREFIX)] + LINE[len(PREFIX) + 4 :], LINE + "===="):
        with pytest.raises(InputError, match="not whole"):
            Invitation.parse(wrong)


@given(st.text(max_size=100))
def test_any_other_text_is_refused_in_words(text: str) -> None:
    for wrong in (text, PREFIX + text):
        with pytest.raises(InputError):
            Invitation.parse(wrong)


@pytest.mark.parametrize("text", ["", "fedvi2_" + LINE[7:], "Fedvi1_" + LINE[7:], LINE[1:], LINE[7:], "north.zip"])
def test_what_does_not_begin_like_an_invitation_is_named(text: str) -> None:
    with pytest.raises(InputError, match=r"Expected an invitation, a line that starts with fedvi1_, got '.*Give the"):
        Invitation.parse(text)
    assert not is_line(text)


def test_no_error_shows_much_of_the_secret() -> None:
    """Of 32 bytes, fewer than 10: each character of the line is six bits."""
    wrong = [LINE[place:] for place in range(1, len(LINE))] + [LINE[:place] for place in range(len(LINE))]
    wrong += [f"{PREFIX}{LINE}", LINE * 20, LINE.replace("_", "+")]
    for text in wrong:
        with pytest.raises(InputError) as caught:
            Invitation.parse(text)
        message = str(caught.value)
        assert not any(text[place : place + 13] in message for place in range(len(PREFIX), len(text) - 13))


def test_an_invitation_of_another_version_is_refused_as_that() -> None:
    def line(value: Any) -> str:
        body = msgspec.msgpack.encode(value)
        return PREFIX + base64.urlsafe_b64encode(body + zlib.crc32(body).to_bytes(4, "big")).decode().rstrip("=")

    plain = msgspec.to_builtins(INVITATION, builtin_types=(bytes,))
    assert Invitation.parse(line(plain)) == INVITATION
    address, seed, expires = plain
    for other in (
        [address, seed],
        [{**address, "more": 1}, seed, expires],
        [{**address, "coordinator": b"short"}, seed, expires],
        [{**address, "site": "../north"}, seed, expires],
        [{**address, "url": "http://coordinator"}, seed, expires],
        [{**address, "tls": "none"}, seed, expires],
        [address, b"short", expires],
        [address, seed, "tomorrow"],
        {"address": address},
        7,
    ):
        with pytest.raises(InputError, match="another version of fedvi"):
            Invitation.parse(line(other))


def test_an_invitation_ends_when_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedvi.federation.invitation.time.time", lambda: 1_999_999_999.0)
    INVITATION.require_current()
    monkeypatch.setattr("fedvi.federation.invitation.time.time", lambda: 2_000_000_001.0)
    with pytest.raises(InputError, match=r"could be used until 20\d\d-\d\d-\d\d \d\d:\d\d\. Ask the coordinator for a"):
        INVITATION.require_current()


# The coordinator's folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("federation") / "coordinator"
    make_federation(description(), folder)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "coordinator")


def names(folder: Path) -> tuple[str, ...]:
    with CoordinatorFile.open(folder / FILE) as file:
        return file.names


def known(folder: Path, name: str) -> tuple[bytes | None, bytes | None, float]:
    """Return a site's key, the public half of its invitation, and until when that may be used."""
    with CoordinatorFile.open(folder / FILE) as file:
        site = file.site(name)
    return site.key, site.invitation, site.expires


def test_a_federation_is_a_folder_for_its_owner_alone(made: Path) -> None:
    assert {path.name for path in made.iterdir()} == {
        "federation.toml",
        "schema.toml",
        FILE,
        KEY,
        TLS_KEY,
        CERTIFICATE,
    }
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    for name in (FILE, KEY, TLS_KEY):
        assert stat.S_IMODE((made / name).stat().st_mode) == 0o600, name
    assert names(made) == ("north", "south")
    assert known(made, "north") == (None, None, 0.0)
    found = Description.load(made)
    assert len(found.identity) == 32
    secret = read_key(made / KEY).private_bytes_raw()
    for path in made.iterdir():
        assert path.name == KEY or secret not in path.read_bytes()


def test_two_federations_with_the_same_settings_are_two(tmp_path: Path) -> None:
    one, other = (make_federation(description(), tmp_path / name) for name in ("one", "other"))
    assert one.identity != other.identity
    assert (tmp_path / "one" / KEY).read_text() != (tmp_path / "other" / KEY).read_text()
    assert pin_of(tmp_path / "one") != pin_of(tmp_path / "other")


def test_an_empty_folder_is_taken_and_another_one_left_alone(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    make_federation(description(), tmp_path / "empty")
    assert names(tmp_path / "empty") == ("north", "south")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for taken in (tmp_path / "full", tmp_path / "file", tmp_path / "empty"):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(InputError, match="Expected a new or empty folder"):
            make_federation(description(), taken)
        assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "instant",
    [
        "fedvi.federation.making.make_key",
        "fedvi.federation.making.make_certificate",
        "fedvi.federation.description.Description.save",
        "fedvi.federation.store.file.CoordinatorFile.create",
        "fedvi.files.os.replace",
        "fedvi.files.os.fsync",
    ],
)
def test_a_federation_that_could_not_be_made_leaves_nothing_behind(
    instant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(instant, fail)
        with pytest.raises((OSError, FileFailed)):
            make_federation(description(), tmp_path / "coordinator")
    assert list(tmp_path.iterdir()) == []
    make_federation(description(), tmp_path / "coordinator")


@pytest.mark.parametrize(
    "host", ["example.org", "fedvi.example.com", "coordinator.example", "EXAMPLE.NET", "a.b.invalid", "invalid"]
)
def test_an_address_that_was_copied_from_an_example_is_refused(host: str, tmp_path: Path) -> None:
    copied = dataclasses.replace(description(), url=f"https://{host}:8443")
    with pytest.raises(InputError, match=rf"own address in url, got the placeholder 'https://{host}:8443'"):
        make_federation(copied, tmp_path / "coordinator")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("host", ["myexample.org", "example.org.hospital.net", "localhost", "10.0.0.1", "[::1]"])
def test_real_addresses_are_taken_and_stand_in_the_certificate(host: str, tmp_path: Path) -> None:
    make_federation(dataclasses.replace(description(), url=f"https://{host}:8443"), tmp_path / "coordinator")
    found = x509.load_pem_x509_certificate((tmp_path / "coordinator" / CERTIFICATE).read_bytes())
    alternative = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(each.value) for each in alternative] == [host.strip("[]")]


def test_an_invitation_says_where_the_coordinator_is_and_how_to_know_it(folder: Path) -> None:
    before = time.time()
    found = Invitation.parse(invite(folder, "north"))
    chosen = Description.load(folder)
    key = public(read_key(folder / KEY))
    assert found.address == Address(chosen.url, pin_of(folder), chosen.identity, "north", key)
    assert 7 * 86400 - 1 <= found.expires - before <= 7 * 86400 + 60
    assert known(folder, "north") == (None, public(found.key), float(found.expires))
    assert found.seed not in (folder / FILE).read_bytes()  # the coordinator keeps its public half


@pytest.mark.parametrize(("tls", "pin"), [("system", "system"), ("ab" * 32, "ab" * 32)])
def test_an_invitation_names_the_certificate_of_the_proxy_in_front(tls: str, pin: str, tmp_path: Path) -> None:
    make_federation(dataclasses.replace(description(), tls=tls), tmp_path / "coordinator")
    assert Invitation.parse(invite(tmp_path / "coordinator", "north")).address.tls == pin


def test_a_federation_over_an_engine_has_no_address(tmp_path: Path) -> None:
    make_federation(dataclasses.replace(description(), url=""), tmp_path / "coordinator")
    address = Invitation.parse(invite(tmp_path / "coordinator", "north")).address
    assert (address.url, address.tls) == ("", "")


def test_inviting_again_gives_another_invitation_and_the_old_one_no_longer_counts(folder: Path) -> None:
    old = Invitation.parse(invite(folder, "north"))
    new = Invitation.parse(invite(folder, "north"))
    assert old.seed != new.seed
    assert old.address == new.address
    assert known(folder, "north")[1] == public(new.key)
    assert names(folder) == ("north", "south")


def test_whoever_is_invited_takes_part(folder: Path) -> None:
    assert Invitation.parse(invite(folder, "west")).address.site == "west"
    assert names(folder) == ("north", "south", "west")
    for wrong in ("", "West", "a b", "all", "coordinator", "../west", "north/2", "west.1"):
        with pytest.raises(InputError, match="a site's name"):
            invite(folder, wrong)
    assert names(folder) == ("north", "south", "west")


class Killed(BaseException):
    """The end of a process, after which nothing tidies up."""


@pytest.mark.parametrize(
    "instant",
    [
        "fedvi.federation.making.address_of",
        "fedvi.federation.store.file.CoordinatorFile.add_site",
        "fedvi.federation.making.secrets.token_bytes",
        "fedvi.federation.store.file.CoordinatorFile.change_site",
        "fedvi.federation.invitation.Invitation.line",
    ],
)
def test_a_site_whose_inviting_was_killed_is_invited_by_the_same_command(
    instant: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(instant, kill)
        with pytest.raises(Killed):
            invite(folder, "west")
    found = Invitation.parse(invite(folder, "west"))
    assert known(folder, "west") == (None, public(found.key), float(found.expires))
    assert names(folder) == ("north", "south", "west")


def test_a_second_table_is_one_of_a_site_that_takes_part(folder: Path) -> None:
    for wrong in ("west.2", "north.1", "north.0", "north.02", "north.100", "north.2.2", "north."):
        with pytest.raises(InputError):
            invite(folder, wrong)
    assert names(folder) == ("north", "south")
    for name in ("north.2", "north.99"):
        assert Invitation.parse(invite(folder, name)).address.site == name
    assert names(folder) == ("north", "south", "north.2", "north.99")


@pytest.mark.parametrize("days", [0, -1.0, float("nan"), float("inf"), 1e9])
def test_an_invitation_for_no_time_or_for_ever_is_refused(days: float, folder: Path) -> None:
    with pytest.raises(InputError, match="days"):
        invite(folder, "west", days)
    assert names(folder) == ("north", "south")


def test_an_invitation_is_good_for_as_many_days_as_were_said(folder: Path) -> None:
    before = time.time()
    assert 3599 <= Invitation.parse(invite(folder, "north", 1 / 24)).expires - before <= 3660


def test_revoking_forgets_key_and_invitation_and_keeps_the_site(folder: Path) -> None:
    invite(folder, "north")
    with CoordinatorFile.open(folder / FILE) as file:
        file.change_site("north", key=bytes(32))
    revoke(folder, "north")
    assert known(folder, "north") == (None, None, 0.0)
    assert names(folder) == ("north", "south")
    with pytest.raises(UnknownClient, match="west"):
        revoke(folder, "west")
    assert Invitation.parse(invite(folder, "north")).address.site == "north"  # it may come back


def test_a_site_that_was_withdrawn_is_not_invited_again(folder: Path) -> None:
    with CoordinatorFile.open(folder / FILE) as file:
        file.withdraw(["north"], 0, time.time())
    with pytest.raises(InputError, match=r"'north' was withdrawn\. Choose a new name, such as north-again"):
        invite(folder, "north")
    assert known(folder, "north") == (None, None, 0.0)
    assert Invitation.parse(invite(folder, "north-again")).address.site == "north-again"


def test_without_its_key_a_coordinator_invites_nobody(folder: Path) -> None:
    (folder / KEY).unlink()
    with pytest.raises(InputError, match=r"Expected the private key .*coordinator\.key, got none\. Restore it"):
        invite(folder, "west")
    for wrong in ("", "ab" * 31, "no key", "é"):
        (folder / KEY).write_text(wrong)
        with pytest.raises(InputError, match="Expected a private key in") as caught:
            invite(folder, "west")
        assert "abab" not in str(caught.value)
    assert names(folder) == ("north", "south")


def test_a_key_is_written_for_its_owner_and_comes_back(tmp_path: Path) -> None:
    made = make_key(tmp_path / "site.key")
    assert stat.S_IMODE((tmp_path / "site.key").stat().st_mode) == 0o600
    assert read_key(tmp_path / "site.key").private_bytes_raw() == made.private_bytes_raw()


def test_the_pin_of_what_is_no_certificate_is_refused(folder: Path, tmp_path: Path) -> None:
    assert pin_of_file(folder / CERTIFICATE) == pin_of(folder)
    for path in (tmp_path / "gone.crt", folder / TLS_KEY):
        with pytest.raises(InputError, match="Expected a certificate"):
            pin_of_file(path)

"""The coordinator's desk: whatever comes gets a signed answer; only who has a site's key speaks for it."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from carried import Direct, key, public
from coordinators import content
from fedvi.errors import FileFailed, InputError, NotReached, SiteRefused
from fedvi.federation import wire
from fedvi.federation.coordinator import Coordinator
from fedvi.federation.description import Description
from fedvi.federation.desk import LOGGED, Desk, Reply
from fedvi.federation.enrolment import enrol, rekey
from fedvi.federation.envelope import (
    COUNTERS,
    ENROL,
    IDENTITY,
    MESSAGE,
    REKEY,
    Correspondence,
    Envelope,
    asked_for_pin,
    open_answer,
    seal,
)
from fedvi.federation.invitation import Invitation
from fedvi.federation.making import KEY, invite, make_federation, make_key, pin_of, read_key, revoke
from fedvi.federation.settings import load_address, save_address
from fedvi.federation.site import Site
from fedvi.federation.transports.base import run as work
from fedvi.files import write
from fedvi.logs import setup
from site_exchanges import saved
from small_federation import answer, answers, description, message, open_site, poll, release

KEYS = {"north": key(11), "south": key(12)}
STRANGER = key(99)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("federation") / "coordinator"
    make_federation(description(("north", "south"), 6), folder)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "coordinator")


@pytest.fixture
def desk(folder: Path) -> Iterator[Desk]:
    with Desk.open(folder) as opened:
        yield opened


def federation(desk: Desk) -> str:
    return desk.coordinator.description.identity


def signed(desk: Desk, name: str, body: bytes, private: Ed25519PrivateKey | None = None, **changes: Any) -> bytes:
    """Return a request of a site; changes: of its fields."""
    values = {"federation": federation(desk), "name": name, "kind": MESSAGE, "wait": 0, "counter": time.time_ns()}
    return seal(**{**values, "key": private or KEYS[name], "body": body, **changes})


def code_of(desk: Desk, folder: Path, data: bytes) -> int:
    """Return the code of the answer to a request, which must be signed whatever it says."""
    return told(desk, folder, data)[0]


def told(desk: Desk, folder: Path, data: bytes) -> tuple[int, bytes]:
    return open_answer(public(read_key(folder / KEY)), federation(desk), data, desk.answer(data))


def invited(folder: Path, name: str, days: float = 7.0) -> Invitation:
    return Invitation.parse(invite(folder, name, days))


def enrolment(desk: Desk, invitation: Invitation, private: Ed25519PrivateKey, name: str = "") -> bytes:
    name = name or invitation.address.site
    return signed(desk, name, public(private), invitation.key, kind=ENROL)


def join(desk: Desk, folder: Path, *names: str) -> None:
    for name in names or KEYS:
        assert code_of(desk, folder, enrolment(desk, invited(folder, name), KEYS[name])) == HTTPStatus.OK


def everything(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return content(folder / "coordinator.db")


def has_paid(site: Site) -> bool:
    return site.remaining < 6


def test_a_site_works_over_signed_messages_to_the_end_and_a_revoked_one_stops(
    desk: Desk, folder: Path, tmp_path: Path
) -> None:
    chosen = desk.coordinator.description
    join(desk, folder)
    coordinator = public(read_key(folder / KEY))
    with open_site(tmp_path, chosen) as north, open_site(tmp_path, chosen, 1) as south:
        here = [
            Correspondence(Direct(desk.answer), federation(desk), name, KEYS[name], coordinator).exchange
            for name in KEYS
        ]
        for site, exchange in zip((north, south), here, strict=True):
            assert work(site, exchange, functools.partial(has_paid, site), lambda _: None)
        assert [site.sequence for site in desk.coordinator.sites()] == [1, 1]
        revoke(folder, "north")
        with pytest.raises(SiteRefused, match="revoked"):
            work(north, here[0])
        assert "revoked" in saved(tmp_path)["failed"]
        assert north.request() is None
        later = time.time() + 1000  # when nobody waits for north any more
        desk.coordinator.clock = lambda: later
        assert work(south, here[1], lambda: south.remaining == 2, lambda _: None)
    assert [site.sequence for site in desk.coordinator.sites()] == [1, 4]
    assert desk.coordinator.verify() < 1e-6


@pytest.mark.parametrize("flip", [1, 0x80])
def test_a_message_of_which_any_byte_was_changed_is_refused_and_changes_nothing(
    flip: int, desk: Desk, folder: Path
) -> None:
    join(desk, folder)
    data, before = signed(desk, "north", release(desk.coordinator.description, 1)), everything(folder)
    for place in [*range(len(data) - 500), *range(len(data) - 500, len(data), 25)]:
        spoilt = bytearray(data)
        spoilt[place] ^= flip
        code = code_of(desk, folder, bytes(spoilt))
        assert code in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN), place
    assert everything(folder) == before
    assert code_of(desk, folder, data) == HTTPStatus.OK
    assert desk.coordinator.version == 1


def test_who_a_message_is_from_says_its_signature_alone(desk: Desk, folder: Path) -> None:
    join(desk, folder)
    body, before = poll(desk.coordinator.description, 0), everything(folder)
    wrong = {
        "another site's name": signed(desk, "south", body, KEYS["north"]),
        "another federation": signed(desk, "north", body, federation="0" * 32),
        "a key that nobody knows": signed(desk, "north", body, STRANGER),
        "no signature": signed(desk, "north", body)[: -len(body) - 64] + bytes(64) + body,
        "a site that nobody knows": signed(desk, "west", body, STRANGER),
        "no name": signed(desk, "", body, STRANGER),
    }
    for what, data in wrong.items():
        assert code_of(desk, folder, data) == HTTPStatus.UNAUTHORIZED, what
    assert everything(folder) == before


def test_who_has_not_joined_or_was_revoked_says_nothing(desk: Desk, folder: Path) -> None:
    body = poll(desk.coordinator.description, 0)
    assert code_of(desk, folder, signed(desk, "north", body)) == HTTPStatus.UNAUTHORIZED
    join(desk, folder, "north")
    assert code_of(desk, folder, signed(desk, "north", body)) == HTTPStatus.OK
    revoke(folder, "north")
    assert code_of(desk, folder, signed(desk, "north", body)) == HTTPStatus.UNAUTHORIZED


def test_copies_of_polls_and_updates_are_refused_with_the_last_counter(desk: Desk, folder: Path) -> None:
    """A copy of 'paused' would stop a site's part otherwise; so it is after the coordinator has started anew."""
    join(desk, folder)
    chosen = desk.coordinator.description
    paused = signed(desk, "north", poll(chosen, 0, wire.PAUSED))
    update = signed(desk, "north", release(chosen, 1))
    working = signed(desk, "north", poll(chosen, 1))
    for data in (paused, update, working):
        assert code_of(desk, folder, data) == HTTPStatus.OK
    found, before = Envelope.open(working), everything(folder)
    assert found is not None
    for _ in range(2):
        for data in (paused, update, working):
            assert told(desk, folder, data) == (HTTPStatus.CONFLICT, found.counter.to_bytes(8, "big"))
        late = signed(desk, "north", poll(chosen, 1, wire.LEFT), counter=found.counter)
        assert code_of(desk, folder, late) == HTTPStatus.CONFLICT
    assert everything(folder) == before
    desk.close()
    with Desk.open(folder) as again:
        for data in (paused, update):
            assert code_of(again, folder, data) == HTTPStatus.CONFLICT
        assert again.coordinator.site("north").state == wire.WORKING
        assert everything(folder) == before


def test_a_site_whose_clock_went_back_goes_on(desk: Desk, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    join(desk, folder)
    body = poll(desk.coordinator.description, 0)
    assert code_of(desk, folder, signed(desk, "north", body)) == HTTPStatus.OK
    monkeypatch.setattr("fedvi.federation.envelope.time.time_ns", lambda: 5)
    transport = Direct(desk.answer)
    here = Correspondence(transport, federation(desk), "north", KEYS["north"], public(read_key(folder / KEY)))
    assert answer(here.exchange(body)).kind == wire.QUESTION
    assert answer(here.exchange(body)).kind == wire.QUESTION
    assert len(transport.sent) == 3  # one more, once


def test_a_counter_beyond_all_files_is_no_request_and_locks_nobody_out(desk: Desk, folder: Path) -> None:
    join(desk, folder)
    body = poll(desk.coordinator.description, 0)
    for counter in (COUNTERS, 2**64 - 1):
        assert code_of(desk, folder, signed(desk, "north", body, counter=counter)) == HTTPStatus.BAD_REQUEST
    assert code_of(desk, folder, signed(desk, "north", body)) == HTTPStatus.OK
    assert code_of(desk, folder, signed(desk, "south", body, counter=COUNTERS - 1)) == HTTPStatus.OK


def test_an_old_answer_to_a_new_question_is_refused_by_the_site(desk: Desk, folder: Path, tmp_path: Path) -> None:
    join(desk, folder)
    old: list[bytes] = []

    def carry(data: bytes) -> bytes:
        old.append(desk.answer(data))
        return old[0]

    coordinator = public(read_key(folder / KEY))
    here = Correspondence(Direct(carry), federation(desk), "north", KEYS["north"], coordinator)
    with open_site(tmp_path, desk.coordinator.description) as site:
        data = site.request()
        assert data is not None
        site.receive(here.exchange(data, wait=False))
        made = site.request()
        assert made is not None
        with pytest.raises(NotReached, match="not signed for this request"):
            here.exchange(made)
        assert site.request() == made  # the same bytes go out again
        assert desk.coordinator.site("north").sequence == 1
        old.clear()
        site.receive(here.exchange(made))
        assert desk.coordinator.site("north").repeated == 1
        assert saved(tmp_path)["releases"] == 1


# Enrolment


def test_whoever_joins_gets_the_federation(desk: Desk, folder: Path) -> None:
    code, body = told(desk, folder, enrolment(desk, invited(folder, "north"), KEYS["north"]))
    assert (code, body.decode()) == (HTTPStatus.OK, desk.coordinator.description.to_text())
    assert set(json.loads(body)) == {"federation.toml", "schema.toml"}
    site = desk.coordinator.site("north")
    assert (site.key, site.expires) == (public(KEYS["north"]), 0.0)


def test_an_invitation_works_once_but_for_the_same_key(desk: Desk, folder: Path) -> None:
    """Who was killed before the answer came asks again."""
    invitation = invited(folder, "north")
    first = told(desk, folder, enrolment(desk, invitation, KEYS["north"]))
    before = everything(folder)
    for _ in range(2):
        assert told(desk, folder, enrolment(desk, invitation, KEYS["north"])) == first
        code, reason = told(desk, folder, enrolment(desk, invitation, STRANGER))
        assert (code, b"used already" in reason) == (HTTPStatus.FORBIDDEN, True)
    assert everything(folder) == before
    assert code_of(desk, folder, signed(desk, "north", poll(desk.coordinator.description, 0))) == HTTPStatus.OK


def test_an_invitation_that_is_wrong_lets_nobody_in(desk: Desk, folder: Path) -> None:
    old = invited(folder, "north")
    new, south = invited(folder, "north"), invited(folder, "south")
    mine = KEYS["north"]
    wrong = {
        "superseded": enrolment(desk, old, mine),
        "of another site": enrolment(desk, south, mine, "north"),
        "another seed": signed(desk, "north", public(mine), STRANGER, kind=ENROL),
        "its own key": signed(desk, "north", public(mine), mine, kind=ENROL),
        "another federation": signed(desk, "north", public(mine), new.key, kind=ENROL, federation="0" * 32),
    }
    for what, data in wrong.items():
        assert code_of(desk, folder, data) == HTTPStatus.FORBIDDEN, what
    for body in (b"", b"short", bytes(33)):
        assert code_of(desk, folder, signed(desk, "north", body, new.key, kind=ENROL)) == HTTPStatus.BAD_REQUEST
    assert code_of(desk, folder, enrolment(desk, new, STRANGER, "west")) == HTTPStatus.UNAUTHORIZED
    assert desk.coordinator.site("north").key is None
    assert code_of(desk, folder, enrolment(desk, new, mine)) == HTTPStatus.OK


def test_an_invitation_that_is_too_old_or_revoked_lets_nobody_in(desk: Desk, folder: Path) -> None:
    invitation, now = invited(folder, "north", 1.0), time.time()
    desk.coordinator.clock = lambda: now + 86401
    code, reason = told(desk, folder, enrolment(desk, invitation, KEYS["north"]))
    assert (code, b"too old" in reason) == (HTTPStatus.FORBIDDEN, True)
    desk.coordinator.clock = lambda: now + 86390
    join(desk, folder, "south")
    revoke(folder, "north")
    assert code_of(desk, folder, enrolment(desk, invitation, KEYS["north"])) == HTTPStatus.FORBIDDEN
    assert desk.coordinator.site("north").key is None
    again = invited(folder, "north")
    assert code_of(desk, folder, enrolment(desk, again, KEYS["north"])) == HTTPStatus.OK
    desk.coordinator.clock = lambda: now + 10**9  # whoever has joined does so for good
    assert code_of(desk, folder, enrolment(desk, again, KEYS["north"])) == HTTPStatus.OK


def test_a_site_that_has_lost_its_key_joins_with_a_new_invitation_and_the_old_key_ends(
    desk: Desk, folder: Path
) -> None:
    join(desk, folder, "north")
    body = poll(desk.coordinator.description, 0)
    invitation = invited(folder, "north")
    assert code_of(desk, folder, signed(desk, "north", body)) == HTTPStatus.OK  # until it is used
    assert code_of(desk, folder, enrolment(desk, invitation, STRANGER)) == HTTPStatus.OK
    assert code_of(desk, folder, signed(desk, "north", body)) == HTTPStatus.UNAUTHORIZED
    assert code_of(desk, folder, signed(desk, "north", body, STRANGER)) == HTTPStatus.OK


def test_a_new_key_counts_if_the_old_one_has_signed_it(desk: Desk, folder: Path) -> None:
    join(desk, folder)
    new, body = key(21), poll(desk.coordinator.description, 0)
    for private in (STRANGER, KEYS["south"], new):
        data = signed(desk, "north", public(new), private, kind=REKEY)
        assert code_of(desk, folder, data) == HTTPStatus.UNAUTHORIZED
    assert code_of(desk, folder, signed(desk, "north", b"short", kind=REKEY)) == HTTPStatus.BAD_REQUEST
    change = signed(desk, "north", public(new), kind=REKEY)
    assert told(desk, folder, change) == (HTTPStatus.OK, b"")
    assert code_of(desk, folder, signed(desk, "north", body)) == HTTPStatus.UNAUTHORIZED
    assert code_of(desk, folder, signed(desk, "north", body, new)) == HTTPStatus.OK
    assert code_of(desk, folder, change) == HTTPStatus.UNAUTHORIZED  # nobody brings the old times back
    back = signed(desk, "north", public(KEYS["north"]), new, kind=REKEY)
    assert code_of(desk, folder, back) == HTTPStatus.OK
    assert code_of(desk, folder, change) == HTTPStatus.CONFLICT


# What is no message


def test_requests_that_are_too_large_are_refused_before_they_are_read(desk: Desk, folder: Path) -> None:
    join(desk, folder)
    longest = signed(desk, "north", b"", private=KEYS["north"])
    fits = signed(desk, "north", bytes(desk.largest - len(longest)))
    assert len(fits) == desk.largest
    assert code_of(desk, folder, fits + b"\0") == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    code, body = told(desk, folder, fits)
    assert (code, answer(body).code) == (HTTPStatus.OK, "malformed")
    assert code_of(desk, folder, bytes(10**8)) == HTTPStatus.REQUEST_ENTITY_TOO_LARGE


def test_a_message_may_be_as_large_as_the_model_makes_it(desk: Desk, folder: Path) -> None:
    join(desk, folder)
    chosen = desk.coordinator.description
    assert len(signed(desk, "north", release(chosen, chosen.spec.updates))) < desk.largest < 1 << 20


@pytest.mark.parametrize(
    "data", [b"", b"GET / HTTP/1.1\r\n\r\n", b"fedviQ\x01", b"fedviQ\x02" + bytes(200), b"\x80\x04." * 99, bytes(5000)]
)
def test_what_is_no_request_is_told_so(data: bytes, desk: Desk, folder: Path) -> None:
    assert code_of(desk, folder, data) == HTTPStatus.BAD_REQUEST


requests = st.binary(max_size=400) | st.builds(
    seal,
    st.just(None) | st.sampled_from([*KEYS.values(), STRANGER]),
    st.just("x"),
    st.sampled_from(["north", "south", "west", "", "a b", "\0", "'; DROP TABLE sites; --"]),
    st.integers(0, 5),
    st.integers(0, 255),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=200),
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.lists(requests, max_size=4))
def test_whatever_comes_there_is_a_signed_answer_to_each_request(data: list[bytes], desk: Desk, folder: Path) -> None:
    coordinator = public(read_key(folder / KEY))
    before = everything(folder)
    found = desk.replies(data)
    assert [each.request for each in found] == data
    for each in found:
        code, _ = open_answer(coordinator, federation(desk), each.request, desk.sealed(each))
        kept = Envelope.open(each.request)
        assert code in (400, 401, 403) or (kept is not None and kept.kind == IDENTITY)
    assert everything(folder) == before


def test_what_a_signed_message_says_wrong_is_a_refusal_within_the_answer(desk: Desk, folder: Path) -> None:
    join(desk, folder)
    for body in (b"", b"garbage", release(desk.coordinator.description, 2)):
        code, said = told(desk, folder, signed(desk, "north", body))
        assert (code, answer(said).kind) == (HTTPStatus.OK, wire.REFUSED)
    assert [each.site for each in desk.coordinator.refusals()] == ["north"] * 3


def test_the_coordinator_says_which_certificate_it_has_to_whoever_asks(desk: Desk, folder: Path) -> None:
    coordinator = public(read_key(folder / KEY))
    for nonce in (b"a" * 32, b"b" * 32, b""):
        found = asked_for_pin(Direct(desk.answer), federation(desk), nonce, coordinator)
        assert found.decode() == pin_of(folder)
        assert len(found) == 64
    with pytest.raises(NotReached):
        asked_for_pin(Direct(desk.answer), "0" * 32, b"a" * 32, coordinator)


# At a site


class Killed(BaseException):
    """The end of a process, after which nothing tidies up."""


@pytest.mark.parametrize("instant", range(1, 5))
def test_who_was_killed_while_joining_joins_again_with_the_same_invitation(
    instant: int, desk: Desk, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    invitation, home = invited(folder, "north"), tmp_path / "north"
    monkeypatch.setattr("fedvi.federation.enrolment.transport_to", lambda *_: Direct(desk.answer))
    written: list[Path] = []

    def killed(path: Path, content: bytes | str, *, private: bool = False) -> None:
        written.append(path)
        if len(written) == instant:
            raise Killed
        write(path, content, private=private)

    with monkeypatch.context() as patched:
        for module in ("making", "enrolment", "settings"):
            patched.setattr(f"fedvi.federation.{module}.write", killed)
        with pytest.raises(Killed):
            enrol(invitation, home)
    enrol(invitation, home)
    assert Description.load(home).digest == desk.coordinator.description.digest
    assert (load_address(home), written[0]) == (invitation.address, home / "site.key")


def test_two_commands_that_join_in_one_folder_at_once_bring_one_key(
    desk: Desk, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the key on disk may be the one that came too late, and nobody knows it."""
    invitation, home, others = invited(folder, "north"), tmp_path / "north", list[threading.Thread]()
    monkeypatch.setattr("fedvi.federation.enrolment.transport_to", lambda *_: Direct(desk.answer))

    def made_while_another_joins(path: Path) -> Ed25519PrivateKey:
        if not others:
            others.append(threading.Thread(target=enrol, args=(invitation, home)))
            others[0].start()
            others[0].join(1.0)
        return make_key(path)

    monkeypatch.setattr("fedvi.federation.enrolment.make_key", made_while_another_joins)
    enrol(invitation, home)
    others[0].join()
    assert desk.coordinator.site("north").key == public(read_key(home / "site.key"))


def test_a_folder_belongs_to_one_coordinator_whatever_an_invitation_says(
    desk: Desk, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names and identities are public: who makes up an invitation with them has another key."""
    invitation, home = invited(folder, "north"), tmp_path / "north"
    monkeypatch.setattr("fedvi.federation.enrolment.transport_to", lambda *_: Direct(desk.answer))
    enrol(invitation, home)
    other = msgspec.structs.replace(invitation.address, coordinator=public(STRANGER))
    with pytest.raises(InputError, match="belongs to"):
        enrol(msgspec.structs.replace(invitation, address=other), home)
    assert load_address(home) == invitation.address


@pytest.mark.parametrize("times", [1, 2])
def test_a_site_and_its_coordinator_agree_on_a_new_key_however_often_it_is_delivered(
    times: int, desk: Desk, folder: Path, tmp_path: Path
) -> None:
    """A relay may die with the answer; the next one takes the same bytes."""
    invitation, home, deliveries = invited(folder, "north"), tmp_path / "north", [times]
    home.mkdir()
    save_address(home, invitation.address)
    old = make_key(home / "site.key")
    assert code_of(desk, folder, enrolment(desk, invitation, old)) == HTTPStatus.OK

    def carry(data: bytes) -> bytes:
        return [desk.answer(data) for _ in range(deliveries.pop() if deliveries else 1)][-1]

    rekey(home, Direct(carry))
    new, body = read_key(home / "site.key"), poll(desk.coordinator.description, 0)
    assert code_of(desk, folder, signed(desk, "north", body, old)) == HTTPStatus.UNAUTHORIZED
    assert code_of(desk, folder, signed(desk, "north", body, new)) == HTTPStatus.OK
    assert [path.name for path in home.glob("*.key")] == ["site.key"]


# Groups


def commits(desk: Desk, work: Callable[[], object]) -> list[str]:
    """Return how transactions began and ended meanwhile."""
    said: list[str] = []
    connection = desk.coordinator._database._connection
    connection.set_trace_callback(said.append)
    work()
    connection.set_trace_callback(None)
    return [each for each in said if each.split()[0] in ("BEGIN", "COMMIT", "ROLLBACK", "END") and " TO " not in each]


def codes(replies: Sequence[Reply]) -> list[int]:
    return [int(reply.code) for reply in replies]


def group_of(desk: Desk) -> list[bytes]:
    """Return two good messages among bad ones."""
    chosen = desk.coordinator.description
    north = signed(desk, "north", release(chosen, 1))
    return [
        b"garbage",
        north,
        signed(desk, "south", b"no message of ours"),
        north,
        signed(desk, "north", poll(chosen, 1), STRANGER),
        signed(desk, "south", release(chosen, 1, 1)),
        signed(desk, "south", release(chosen, 3, 1)),
    ]


def test_a_group_is_one_commit_answered_in_order_and_bad_messages_undo_no_good_ones(desk: Desk, folder: Path) -> None:
    join(desk, folder)
    group, made = group_of(desk), []
    assert commits(desk, lambda: made.extend(desk.replies(group))) == ["BEGIN IMMEDIATE", "COMMIT"]
    assert [each.request for each in made] == group
    assert codes(made) == [400, 200, 200, 409, 401, 200, 200]
    said = [answer(made[place].body) for place in (1, 2, 5, 6)]
    assert [(each.code, each.applied) for each in said] == [
        ("", 1),
        ("malformed", 0),
        ("", 1),
        ("out of sequence", 1),
    ]
    assert [site.sequence for site in desk.coordinator.sites()] == [1, 1]
    assert desk.coordinator.verify() < 1e-6
    counted = desk.metrics.text().decode().splitlines()
    assert 'fedvi_messages_total{code="409"} 1.0' in counted
    assert 'fedvi_refusals_total{code="malformed"} 1.0' in counted
    assert "fedvi_commit_messages_sum 9.0" in counted  # with two that joined
    assert "fedvi_commit_seconds_count 3.0" in counted


def test_a_fault_with_one_message_undoes_that_message_alone(
    desk: Desk, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    join(desk, folder)
    group, reply = group_of(desk), Coordinator.reply

    def faulty(self: Coordinator, name: str, data: bytes, counter: int = 0) -> wire.Answer:
        found = reply(self, name, data, counter)
        if name == "north":
            raise ZeroDivisionError("a fault of ours")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Coordinator, "reply", faulty)
        assert codes(desk.replies(group)) == [400, 500, 200, 409, 401, 200, 200]
    assert [site.sequence for site in desk.coordinator.sites()] == [0, 1]
    assert code_of(desk, folder, signed(desk, "north", release(desk.coordinator.description, 1))) == HTTPStatus.OK
    assert [site.sequence for site in desk.coordinator.sites()] == [1, 1]


def fill_up(desk: Desk) -> None:
    """Leave no page free in the coordinator's file."""
    database = desk.coordinator._database
    (pages,) = database.only("PRAGMA page_count")
    database.execute(f"PRAGMA max_page_count = {pages}")
    with contextlib.suppress(FileFailed):
        while True:
            database.insert("refusals", (None, 0.0, "north", "absurd", "x" * 1000))


def test_a_full_disk_is_a_signed_503_for_the_whole_group_and_nothing_has_changed(desk: Desk, folder: Path) -> None:
    """Counters included: the same bytes are taken when there is room again."""
    join(desk, folder)
    chosen = desk.coordinator.description
    fill_up(desk)
    event: dict[str, str | int | float] = {"kind": "x" * 500}
    long = wire.Declared(200, 0.5, 1.0, 1e-3, tuple([event] * 60))  # it needs some pages
    large = message(chosen, 1, answers(chosen, 1, 1), declared=long)
    group = [b"garbage", signed(desk, "north", release(chosen, 1)), signed(desk, "south", large)]
    before = everything(folder)
    for _ in range(3):
        made = desk.replies(group)
        assert codes(made) == [503] * 3
        assert b"full" in made[0].body
        for each in made:
            code, _body = open_answer(public(read_key(folder / KEY)), federation(desk), each.request, desk.sealed(each))
            assert code == HTTPStatus.SERVICE_UNAVAILABLE
    assert everything(folder) == before
    here = Correspondence(Direct(desk.answer), federation(desk), "south", KEYS["south"], public(read_key(folder / KEY)))
    with pytest.raises(NotReached, match="503"):
        here.exchange(large)
    desk.coordinator._database.execute("PRAGMA max_page_count = 1000000")
    assert codes(desk.replies(group)) == [400, 200, 200]
    assert [site.sequence for site in desk.coordinator.sites()] == [1, 1]
    assert 'fedvi_messages_total{code="503"} 10.0' in desk.metrics.text().decode()


def test_a_file_that_another_process_holds_is_a_signed_503_too(desk: Desk, folder: Path) -> None:
    join(desk, folder)
    desk.coordinator._database.execute("PRAGMA busy_timeout = 20")
    data = signed(desk, "north", release(desk.coordinator.description, 1))
    other = sqlite3.connect(folder / "coordinator.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert code_of(desk, folder, data) == HTTPStatus.SERVICE_UNAVAILABLE
    other.execute("ROLLBACK")
    other.close()
    assert code_of(desk, folder, data) == HTTPStatus.OK


def test_an_answer_without_a_question_may_be_held_back_until_there_is_one(desk: Desk, folder: Path) -> None:
    join(desk, folder)
    chosen = desk.coordinator.description
    desk.replies([signed(desk, "south", poll(chosen, 0))])
    (waits,) = desk.replies([signed(desk, "north", release(chosen, 1), wait=25)])
    (hasty,) = desk.replies([signed(desk, "north", poll(chosen, 1))])
    assert (answer(waits.body).kind, waits.wait, hasty.wait) == (wire.WAIT, 25, 0)
    assert desk.again(waits) == waits
    (asks,) = desk.replies([signed(desk, "south", release(chosen, 1, 1), wait=25)])
    assert (answer(asks.body).kind, asks.wait) == (wire.QUESTION, 0)
    found = desk.again(waits)
    assert (answer(found.body).kind, found.wait, found.request) == (wire.QUESTION, 0, waits.request)
    (waits,) = desk.replies([signed(desk, "north", release(chosen, 2), wait=25)])
    desk.coordinator.end("enough")
    assert (answer(desk.again(waits).body).stop, desk.again(waits).wait) == ("enough", 0)


@pytest.mark.parametrize("how", ["withdrawn", "revoked"])
def test_a_site_that_is_taken_out_while_it_waits_is_told_so_and_asked_nothing_more(
    how: str, desk: Desk, folder: Path
) -> None:
    """It would pay for an answer that nobody takes."""
    join(desk, folder)
    chosen = desk.coordinator.description
    desk.replies([signed(desk, "south", poll(chosen, 0))])
    (waits,) = desk.replies([signed(desk, "north", release(chosen, 1), wait=25)])
    assert waits.wait
    if how == "withdrawn":
        desk.coordinator.withdraw(["north"], 0, time.time())
    else:
        revoke(folder, "north")
    for _ in range(2):
        found = desk.again(waits)
        assert (found.code, found.wait) == (HTTPStatus.OK if how == "withdrawn" else HTTPStatus.UNAUTHORIZED, 0)
        assert how in (answer(found.body).reason if how == "withdrawn" else found.body.decode())
        desk.replies([signed(desk, "south", release(chosen, 1, 1))])  # now question 2 is asked


# Logs


def test_so_many_refusals_are_logged_in_a_minute_and_no_more(
    desk: Desk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1e6
    monkeypatch.setattr("fedvi.federation.desk.time.monotonic", lambda: now)

    def logged(knocks: int) -> int:
        caplog.clear()
        for _ in range(knocks):
            desk.answer(b"knock, knock")
        return len(caplog.records)

    assert logged(LOGGED - 1) == LOGGED - 1
    assert logged(200) == 2
    assert "counted, not logged" in caplog.text
    now += 59
    assert logged(200) == 0
    now += 2
    assert logged(200) == LOGGED + 1
    assert 'fedvi_refusals_total{code="bad request"} 659.0' in desk.metrics.text().decode()


def test_logs_say_who_was_refused_and_why_and_hold_no_secret(desk: Desk, folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "coordinator.log"
    handler = setup(log, as_json=True, debug=True)
    try:
        old, new = invited(folder, "north"), invited(folder, "north")
        join(desk, folder, "south")
        for data in (
            enrolment(desk, old, KEYS["north"]),
            enrolment(desk, new, KEYS["north"]),
            enrolment(desk, new, STRANGER),
            signed(desk, "north", poll(desk.coordinator.description, 0), STRANGER),
            signed(desk, "south", release(desk.coordinator.description, 5)),
            signed(desk, "north", public(key(21)), kind=REKEY),
            old.line().encode(),
            new.seed,
        ):
            desk.answer(data)
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(each["event"], each.get("site"), each.get("code")) for each in lines] == [
        ("joined", "south", None),
        ("refused", "unknown", 403),
        ("joined", "north", None),
        ("refused", "north", 403),
        ("refused", "north", 401),
        ("refused", "south", 200),
        ("has a new key", "north", None),
        ("refused", "unknown", 400),
        ("refused", "unknown", 400),
    ]
    assert [each.get("refusal") for each in lines if each["event"] == "refused"] == [
        "forbidden",
        "forbidden",
        "unauthorized",
        "out of sequence",
        "bad request",
        "bad request",
    ]
    private = [read_key(folder / KEY), *KEYS.values(), key(21)]
    secrets = [old.seed, new.seed, *(each.private_bytes_raw() for each in private)]
    text = log.read_text()
    for secret in secrets:
        assert secret.hex() not in text
        assert repr(secret)[2:-1] not in text
    assert "fedvi1_" not in text

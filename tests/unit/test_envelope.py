"""Signed envelopes: whoever carries them can delay or drop them, and nothing else."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carried import Direct, key, public
from fedvi.errors import NotReached, SiteRefused
from fedvi.federation import envelope
from fedvi.federation.envelope import COUNTERS, ENROL, IDENTITY, MESSAGE, Correspondence, Envelope, seal, seal_answer

SITE, COORDINATOR, STRANGER = key(1), key(2), key(3)
FEDERATION, NAME, BODY = "f" * 32, "north.2", b"what the site says"


def request(**changes: Any) -> bytes:
    values = {
        "key": SITE,
        "federation": FEDERATION,
        "name": NAME,
        "kind": MESSAGE,
        "wait": 25,
        "counter": 7,
        "body": BODY,
    }
    return seal(**{**values, **changes})


def answer(asked: bytes, code: int = 200, body: bytes = b"fine", **changes: Any) -> bytes:
    values = {"key": COORDINATOR, "federation": FEDERATION, "request": asked, "code": code, "body": body}
    return seal_answer(**{**values, **changes})


def opened(asked: bytes, data: bytes) -> tuple[int, bytes]:
    return envelope.open_answer(public(COORDINATOR), FEDERATION, asked, data)


def corresponding(carry: Callable[[bytes], bytes], wait: float = 0.0) -> tuple[Correspondence, Direct]:
    transport = Direct(carry, wait)
    return Correspondence(transport, FEDERATION, NAME, SITE, public(COORDINATOR)), transport


def is_genuine(data: bytes, name: str = NAME, federation: str = FEDERATION) -> bool:
    """Tell whether the coordinator would take this for a message of the site."""
    found = Envelope.open(data)
    return found is not None and found.name == name and found.is_signed_by(public(SITE), federation)


names = st.from_regex(r"[a-z0-9.-]{0,64}", fullmatch=True)


@given(names, st.integers(0, IDENTITY), st.integers(0, 255), st.integers(0, COUNTERS - 1), st.binary(max_size=300))
def test_a_request_comes_back_from_its_bytes(name: str, kind: int, wait: int, counter: int, body: bytes) -> None:
    data = request(name=name, kind=kind, wait=wait, counter=counter, body=body)
    found = Envelope.open(data)
    assert found is not None
    assert (found.name, found.kind, found.wait, found.counter, found.body) == (name, kind, wait, counter, body)
    assert is_genuine(data, name)
    assert len(data) <= len(body) + envelope.OVERHEAD


@given(st.binary(max_size=300), st.booleans())
def test_bytes_that_are_no_request_are_not_taken_for_one(data: bytes, marked: bool) -> None:
    assert not is_genuine(envelope.REQUEST + data if marked else data)


@pytest.mark.parametrize("flip", [1, 2, 0x80, 0xFF])
def test_a_request_of_which_any_byte_was_changed_is_refused(flip: int) -> None:
    data = request()
    assert is_genuine(data)
    for place in range(len(data)):
        spoilt = bytearray(data)
        spoilt[place] ^= flip
        assert not is_genuine(bytes(spoilt)), place


def test_a_request_that_was_cut_or_has_more_is_refused() -> None:
    data = request()
    for length in range(len(data)):
        assert not is_genuine(data[:length]), length
    assert not is_genuine(data + b"\0")


def test_a_request_counts_for_its_federation_and_its_signer_alone() -> None:
    assert not is_genuine(request(federation="e" * 32))
    assert not is_genuine(request(key=STRANGER))
    assert not is_genuine(request(key=None))
    found = Envelope.open(request())
    assert found is not None
    assert not found.is_signed_by(b"no key", FEDERATION)


def test_counters_that_no_file_can_hold_are_refused() -> None:
    assert is_genuine(request(counter=COUNTERS - 1))
    for counter in (COUNTERS, 2**64 - 1):
        assert Envelope.open(request(counter=counter)) is None


def test_names_that_are_no_ascii_and_kinds_that_nobody_knows_are_refused() -> None:
    assert Envelope.open(request(kind=IDENTITY + 1)) is None
    start = len(envelope.REQUEST) + envelope.HEADER.size
    data = bytearray(request())
    data[start] = 0xE9
    assert Envelope.open(bytes(data)) is None


@pytest.mark.parametrize("flip", [1, 0x80, 0xFF])
def test_an_answer_of_which_any_byte_was_changed_is_none(flip: int) -> None:
    asked = request()
    data = answer(asked, 403, b"because")
    assert opened(asked, data) == (403, b"because")
    for place in range(len(data)):
        spoilt = bytearray(data)
        spoilt[place] ^= flip
        with pytest.raises(NotReached):
            opened(asked, bytes(spoilt))
    for length in range(len(data)):
        with pytest.raises(NotReached):
            opened(asked, data[:length])


def test_an_answer_counts_for_one_request_of_one_federation_by_one_coordinator() -> None:
    asked = request()
    others = [request(counter=8), request(body=b""), request(name="south"), request(wait=0), request(kind=ENROL)]
    wrong = [*(answer(each) for each in others), answer(asked, federation="e" * 32), answer(asked, key=STRANGER)]
    for data in wrong:
        with pytest.raises(NotReached, match="not signed for this request"):
            opened(asked, data)
    assert opened(asked, answer(asked)) == (200, b"fine")


@given(st.binary(max_size=200), st.booleans())
def test_bytes_that_are_no_answer_are_not_taken_for_one(data: bytes, marked: bool) -> None:
    with pytest.raises(NotReached):
        opened(request(), envelope.ANSWER + data if marked else data)


CODES = [0, 100, 201, 204, 302, 400, 402, 404, 405, 409, 413, 429, 500, 502, 503, 504, 999, 65535]


@pytest.mark.parametrize("code", [200, 401, 403, *CODES])
def test_only_a_signed_401_or_403_stops_a_site(code: int) -> None:
    here, _ = corresponding(lambda asked: answer(asked, code, b"because"))
    if code == 200:
        assert here.exchange(BODY) == b"because"
    elif code in (401, 403):
        with pytest.raises(SiteRefused, match="refuses: because"):
            here.exchange(BODY)
    else:
        with pytest.raises(NotReached, match=str(code)):
            here.exchange(BODY)


FOREIGN: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda _: b"",
    "a proxy's page": lambda _: b"<html><h1>403 Forbidden</h1>Your company blocks this site.</html>",
    "HTTP": lambda _: b"HTTP/1.1 401 Unauthorized\r\n\r\n",
    "the request itself": lambda asked: asked,
    "garbage": lambda _: bytes(range(256)) * 10,
    "an unsigned 403": lambda _: envelope.ANSWER + b"\x01\x93" + bytes(64) + b"Go away.",
    "a 403 by another coordinator": lambda asked: answer(asked, 403, b"Go away.", key=STRANGER),
    "a 403 by the site": lambda asked: answer(asked, 403, b"Go away.", key=SITE),
    "a 403 to another request": lambda asked: answer(asked + b" ", 403, b"Go away."),
    "a 403 of another federation": lambda asked: answer(asked, 403, b"Go away.", federation="e" * 32),
    "a header alone": lambda _: envelope.ANSWER,
}


@pytest.mark.parametrize("what", FOREIGN)
def test_whatever_the_coordinator_has_not_signed_is_no_answer(what: str) -> None:
    here, _ = corresponding(FOREIGN[what])
    with pytest.raises(NotReached) as caught:
        here.exchange(BODY)
    assert str(caught.value).isprintable()
    assert "Go away" not in str(caught.value)


def test_nothing_that_a_coordinator_says_steers_a_terminal_or_fills_a_screen() -> None:
    for code, kind in ((403, SiteRefused), (503, NotReached)):
        here, _ = corresponding(functools.partial(answer, code=code, body=b"\x1b[2J\r\n\xff" + b"x" * 10**6))
        with pytest.raises(kind) as caught:
            here.exchange(BODY)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 3000


def counter_of(data: bytes) -> int:
    found = Envelope.open(data)
    assert found is not None
    return found.counter


def by_counter(last: int) -> Callable[[bytes], bytes]:
    """Return a coordinator that has seen this counter."""

    def carry(asked: bytes) -> bytes:
        nonlocal last
        if counter_of(asked) <= last:
            return answer(asked, 409, last.to_bytes(8, "big"))
        last = counter_of(asked)
        return answer(asked)

    return carry


def test_counters_grow_from_the_clock_and_a_site_whose_clock_went_back_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    before = time.time_ns()
    here, transport = corresponding(by_counter(0))
    for _ in range(3):
        assert here.exchange(BODY) == b"fine"
    counters = [counter_of(data) for data in transport.sent]
    assert before < counters[0] < counters[1] < counters[2] < time.time_ns() + 10
    ahead = before + 10**18  # what its clock said before
    monkeypatch.setattr("fedvi.federation.envelope.time.time_ns", lambda: before)
    here, transport = corresponding(by_counter(ahead))
    for _ in range(3):
        assert here.exchange(BODY) == b"fine"
    assert [counter_of(data) for data in transport.sent] == [before + 1, ahead + 1, ahead + 2, ahead + 3]


@pytest.mark.parametrize("last", [b"", b"\0", bytes(8), b"\xff" * 8, b"\xff" * 100, (COUNTERS - 1).to_bytes(8, "big")])
def test_a_coordinator_that_says_conflict_for_ever_stops_nobody(last: bytes) -> None:
    honest = False
    here, transport = corresponding(lambda asked: answer(asked) if honest else answer(asked, 409, last))
    with pytest.raises(NotReached):
        here.exchange(BODY)
    assert len(transport.sent) <= 2
    honest = True
    assert here.exchange(BODY) == b"fine"


def test_a_conflict_that_nobody_signed_moves_no_counter() -> None:
    here, transport = corresponding(lambda asked: answer(asked, 409, (2**62).to_bytes(8, "big"), key=STRANGER))
    for _ in range(2):
        with pytest.raises(NotReached):
            here.exchange(BODY)
    assert counter_of(transport.sent[1]) == counter_of(transport.sent[0]) + 1


def test_an_answer_is_held_back_only_where_the_transport_can_wait() -> None:
    for wait, seconds in ((25.0, 25), (0.0, 0)):
        here, transport = corresponding(answer, wait)
        here.exchange(BODY)
        here.exchange(BODY, wait=True)
        assert [found.wait for found in map(Envelope.open, transport.sent) if found] == [0, seconds]


def test_the_pin_of_a_certificate_counts_if_the_coordinator_has_signed_it_for_this_question() -> None:
    def ask(carry: Callable[[bytes], bytes], nonce: bytes = b"n" * 32) -> bytes:
        return envelope.asked_for_pin(Direct(carry), FEDERATION, nonce, public(COORDINATOR))

    assert ask(lambda asked: answer(asked, 200, b"ab" * 32)) == b"ab" * 32
    before = Direct(answer)
    envelope.asked_for_pin(before, FEDERATION, b"n" * 32, public(COORDINATOR))
    wrong: list[Callable[[bytes], bytes]] = [
        lambda _: before.answers[0],
        lambda asked: answer(asked, 200, b"ab" * 32, key=STRANGER),
        lambda asked: answer(asked, 404, b"ab" * 32),
        lambda _: b"",
    ]
    for carry in wrong:
        with pytest.raises(NotReached):
            ask(carry, b"m" * 32)

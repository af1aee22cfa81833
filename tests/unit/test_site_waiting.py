"""A site that waits holds neither rows nor ledger, and its loop asks again without haste."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from fedvi.errors import InputError, LedgerError, NotReached, SiteRefused
from fedvi.federation import wire
from fedvi.federation.coordinator import Coordinator
from fedvi.federation.site import Site
from fedvi.federation.site_file import SiteFile
from fedvi.federation.transports import base
from fedvi.federation.wire import Answer
from fedvi.inference import PrivateClient
from fedvi.privacy import Budget
from fedvi.privacy.ledger import ledger as ledgers
from fedvi.privacy.ledger.locked import Locked
from site_exchanges import DESCRIPTION, saved
from small_federation import description, open_coordinator, open_site, rows_of, site_of


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    with open_coordinator(tmp_path, DESCRIPTION) as opened:
        yield opened


def exchange(site: Site, coordinator: Coordinator, times: int = 1) -> list[wire.Request]:
    sent = []
    for _ in range(times):
        data = site.request()
        assert data is not None
        site.receive(coordinator.handle("north", data))
        sent.append(wire.decode(data, wire.Request, 1 << 20))
    return sent


def is_free(folder: Path, name: str = "north") -> bool:
    """Tell whether another process could open the ledger now."""
    try:
        Locked.open(folder / f"{name}.ledger").close()
    except LedgerError:
        return False
    return True


WAIT = Answer(DESCRIPTION.digest, wire.WAIT, 0, 0)


def test_a_site_opens_rows_and_ledger_when_a_question_comes_and_not_before(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    open_site(tmp_path, DESCRIPTION).close()
    with open_site(tmp_path, DESCRIPTION, now=False) as site:
        for _ in range(3):
            assert site.remaining == 4
            assert site.request() is not None
            site.receive(wire.encode(WAIT))
            assert (site.is_open, site.waiting, is_free(tmp_path)) == (False, True, True)
        exchange(site, coordinator)
        assert (site.is_open, site.waiting, is_free(tmp_path)) == (True, False, False)
        exchange(site, coordinator)
        assert (site.remaining, coordinator.version) == (3, 1)


def test_a_site_that_rests_goes_on_where_it_was(coordinator: Coordinator, tmp_path: Path) -> None:
    with open_site(tmp_path, DESCRIPTION) as site:
        said = exchange(site, coordinator, 3)
        while site.request() is not None and not coordinator.over:
            site.rest()
            site.rest()  # again is nothing
            assert (site.is_open, is_free(tmp_path)) == (False, True)
            book = ledgers.read(tmp_path / "north.ledger")
            assert site.remaining == 4 - sum(book.charged.values())
            said += exchange(site, coordinator)
    assert said[-1].declared.epsilon == pytest.approx(book.spent.epsilon)
    assert sum(book.charged.values()) == 4
    assert [(each.kind, each.sequence) for each in said if each.kind == wire.FACTOR] == [
        (wire.FACTOR, number) for number in (1, 2, 3, 4)
    ]
    assert said[-1].state == wire.FINISHED
    assert coordinator.verify() < 1e-6


def test_a_release_that_is_pending_while_a_site_rests_goes_out_as_it_is(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    with open_site(tmp_path, DESCRIPTION) as site:
        exchange(site, coordinator)
        data = site.request()
        site.rest()
        assert site.request() == data
        assert not site.waiting
        assert not site.is_open
        assert site.remaining == 3
        exchange(site, coordinator)
    assert sum(ledgers.read(tmp_path / "north.ledger").charged.values()) == 1
    assert coordinator.version == 1


def test_a_refused_release_is_dropped_while_a_site_rests_too(coordinator: Coordinator, tmp_path: Path) -> None:
    with open_site(tmp_path, DESCRIPTION) as site:
        exchange(site, coordinator)
        site.request()
        site.rest()
        refused = msgspec.structs.replace(WAIT, kind=wire.REFUSED, code="absurd", reason="because")
        site.receive(wire.encode(refused))
        assert (saved(tmp_path)["releases"], saved(tmp_path)["note"]) == (0, "because")
        exchange(site, coordinator, 2)
    assert coordinator.site("north").sequence == 1
    assert sum(ledgers.read(tmp_path / "north.ledger").charged.values()) == 2


def test_a_file_that_is_not_there_yet_is_made_with_the_ledger(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Expected a file at"):
        open_site(tmp_path, DESCRIPTION, now=False)
    assert not (tmp_path / "north.ledger").exists()


def gone() -> PrivateClient:
    raise InputError("Expected a table at rows.csv, got none.")


def test_what_is_wrong_with_the_rows_is_not_the_coordinators_fault(coordinator: Coordinator, tmp_path: Path) -> None:
    open_site(tmp_path, DESCRIPTION).close()

    with (
        Site.open(tmp_path / "north.db", DESCRIPTION, tmp_path / "north.ledger", gone, now=False) as site,
        pytest.raises(InputError, match=r"^Expected a table at rows\.csv"),
    ):
        exchange(site, coordinator)
    assert saved(tmp_path)["failed"] == ""  # when the table is back, the site goes on


@pytest.mark.parametrize("state", [wire.PAUSED, wire.SPENT, wire.LEFT])
def test_who_answers_no_question_opens_no_rows_for_it(state: str, tmp_path: Path) -> None:
    """Also where the rows are gone, a site can leave."""
    chosen = description(updates=4)
    open_site(tmp_path, chosen).close()
    with SiteFile.open(tmp_path / "north.db") as file:
        if state == wire.SPENT:
            file.commit(dataclasses.replace(file.load(), remaining=0))
        else:
            file.want(state)
    with open_coordinator(tmp_path, chosen) as coordinator:
        coordinator.begin()
        with Site.open(tmp_path / "north.db", chosen, tmp_path / "north.ledger", gone, now=False) as site:
            assert exchange(site, coordinator)[0].state == state
            assert saved(tmp_path)["said"] == coordinator.site("north").state == state
            assert site.waiting == (state != wire.LEFT)
        with SiteFile.open(tmp_path / "north.db") as file:
            file.want(wire.WORKING)
            file.commit(dataclasses.replace(file.load(), remaining=None))
        with open_site(tmp_path, chosen, now=False) as site:
            exchange(site, coordinator, 2)
        assert coordinator.site("north").sequence == 1


def test_another_ledger_is_noticed_when_it_is_opened_late(coordinator: Coordinator, tmp_path: Path) -> None:
    open_site(tmp_path, DESCRIPTION).close()
    other = rows_of(5), Budget(1.0), tmp_path / "other.ledger"
    site_of(tmp_path / "other.db", DESCRIPTION, *other).close()
    with site_of(tmp_path / "north.db", DESCRIPTION, *other, now=False) as site:
        with pytest.raises(InputError, match="goes with another ledger"):
            exchange(site, coordinator)
        assert not site.is_open
    assert is_free(tmp_path, "other")


def test_news_of_the_coordinator_are_kept_for_the_people_here(tmp_path: Path) -> None:
    with open_site(tmp_path, DESCRIPTION) as site:
        for news in ("south was withdrawn", ""):
            site.request()
            site.receive(wire.encode(msgspec.structs.replace(WAIT, news=news)))
            with SiteFile.open(tmp_path / "north.db") as file:
                assert file.load().news == news


# The loop


class Sleeps:
    """Takes the place of `time.sleep`, and of the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.slept = 1000.0, list[float]()
        monkeypatch.setattr("fedvi.federation.transports.base.time.monotonic", lambda: self.now)

    def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> Sleeps:
    return Sleeps(monkeypatch)


def telling(*answers: bytes | Exception, then: Callable[[bytes], bytes]) -> base.Exchange:
    """Return an exchange that gives these answers, and then what a function says."""
    rest = iter(answers)

    def exchange(body: bytes, **_: bool) -> bytes:
        found = next(rest, None)
        if isinstance(found, Exception):
            raise found
        return then(body) if found is None else found

    return exchange


def test_a_site_that_is_not_answered_sends_the_same_again_and_waits_longer_each_time(
    coordinator: Coordinator, tmp_path: Path, sleeps: Sleeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedvi.federation.transports.base.random.uniform", lambda _low, high: high)
    sent: list[bytes] = []

    def handle(body: bytes) -> bytes:
        sent.append(body)
        return coordinator.handle("north", body)

    lost = [NotReached("The line is dead.")] * 9
    with open_site(tmp_path, DESCRIPTION) as site:
        assert base.run(site, telling(*lost[:2], then=handle), sleep=sleeps, stopped=lambda: len(sent) == 1)
        assert sleeps.slept == [base.SHORTEST, 2 * base.SHORTEST]
        assert saved(tmp_path)["note"] == ""  # nobody is told of a short while
        base.run(site, telling(*lost, then=handle), sleep=sleeps, stopped=lambda: len(sleeps.slept) == 11)
        assert saved(tmp_path)["note"] == "The line is dead."
        assert sleeps.slept[-1] == max(sleeps.slept) == base.LONGEST
        assert base.run(site, telling(then=handle), sleep=sleeps)
    assert saved(tmp_path)["note"] == ""
    assert coordinator.over
    assert len(sent) == len(set(sent))  # none of the lost ones has come


def test_a_site_that_waits_asks_less_often_and_rests_when_it_has_waited_for_long(
    tmp_path: Path, sleeps: Sleeps
) -> None:
    waits: list[bool] = []

    def hold(body: bytes, *, wait: bool) -> bytes:  # noqa: ARG001 - whatever it says
        waits.append(wait)
        return wire.encode(WAIT)

    with open_site(tmp_path, DESCRIPTION) as site:
        assert not base.run(site, hold, sleep=sleeps, idle=30.0)
        assert not site.is_open
        assert is_free(tmp_path)
        assert sleeps.slept[:3] == [base.SHORTEST, 2 * base.SHORTEST, 4 * base.SHORTEST]
        assert max(sleeps.slept) == base.ASK_EVERY
        assert 30 <= sum(sleeps.slept) <= 30 + base.ASK_EVERY
        assert base.run(site, hold, lambda: len(sleeps.slept) > 100, sleeps, idle=30.0)  # rows are let go of once
    assert set(waits) == {True}


def test_a_site_sleeps_no_longer_if_its_coordinator_held_the_answer_back(tmp_path: Path, sleeps: Sleeps) -> None:
    def hold(body: bytes, *, wait: bool) -> bytes:  # noqa: ARG001 - whatever it says
        sleeps.now += 25
        return wire.encode(WAIT)

    with open_site(tmp_path, DESCRIPTION) as site:
        assert base.run(site, hold, lambda: len(sleeps.slept) == 5, sleeps, idle=math.inf)
    assert sleeps.slept == [0.0] * 5


def test_what_a_site_says_last_is_answered_at_once(coordinator: Coordinator, tmp_path: Path, sleeps: Sleeps) -> None:
    """A coordinator that held it back would keep people waiting who want to leave."""
    waits: list[tuple[str, str, bool]] = []

    def exchange(body: bytes, *, wait: bool) -> bytes:
        said = wire.decode(body, wire.Request, 1 << 20)
        waits.append((said.kind, said.state, wait))
        return coordinator.handle("north", body)

    with open_site(tmp_path, DESCRIPTION) as site:
        assert base.run(site, exchange, sleep=sleeps)
        with SiteFile.open(tmp_path / "north.db") as file:
            file.want(wire.LEFT)
        assert base.run(site, exchange, sleep=sleeps)
    assert waits == [
        (wire.POLL, wire.WORKING, True),
        *[(wire.FACTOR, wire.WORKING, True)] * 3,
        (wire.FACTOR, wire.WORKING, False),  # it says that it has spent its budget at once
        (wire.POLL, wire.SPENT, True),
        (wire.POLL, wire.FINISHED, False),
        (wire.POLL, wire.LEFT, False),
    ]


def test_a_refusal_ends_the_loop_and_is_kept(tmp_path: Path, sleeps: Sleeps) -> None:
    with open_site(tmp_path, DESCRIPTION) as site:
        with pytest.raises(SiteRefused, match="revoked"):
            base.run(site, telling(SiteRefused("It was revoked."), then=lambda _: b""), sleep=sleeps)
        assert saved(tmp_path)["failed"] == "It was revoked."
        assert base.run(site, telling(then=lambda _: b""), sleep=sleeps)  # it has nothing more to say
        with SiteFile.open(tmp_path / "north.db") as file:
            file.want(wire.WORKING)
        assert site.request() is not None
    assert sleeps.slept == []

"""The durable site: it pays before it computes, sends the same bytes until they are acknowledged, and decides alone."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedvi.errors import FileFailed, InputError, LedgerInUse, NotReached, SiteRefused
from fedvi.families import FullGaussian
from fedvi.federation import wire
from fedvi.federation.coordinator import Coordinator
from fedvi.federation.site import Site
from fedvi.federation.site_file import MOST_LOST, SiteFile
from fedvi.federation.store.status import Scores
from fedvi.federation.store.turns import Start
from fedvi.federation.transports.base import run as work
from fedvi.federation.wire import Answer, Request
from fedvi.inference import PrivateClient
from fedvi.privacy import Budget
from fedvi.privacy.ledger import ledger as ledgers
from fedvi.privacy.ledger.locked import Locked
from fedvi.tables import NumberTarget
from site_exchanges import DESCRIPTION, saved
from small_federation import description, open_coordinator, open_site, rows_of, site_of

FORM = DESCRIPTION.form


@pytest.fixture(autouse=True)
def nobody_waits_for_a_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads a ledger that a site has open waits a moment for it; here that site is in the same thread."""
    monkeypatch.setattr(Locked, "patience", 0.001)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with open_site(tmp_path, DESCRIPTION) as opened:
        yield opened


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    with open_coordinator(tmp_path, DESCRIPTION) as opened:
        yield opened


def read(data: bytes | None) -> Request:
    assert data is not None
    return wire.decode(data, Request, 1 << 20)


def charges(folder: Path, name: str = "north") -> int:
    """Return what the ledger on disk has paid for, also while the site works."""
    return sum(ledgers.read(folder / f"{name}.ledger").charged.values())


def told(applied: int, question: Any = FORM, **changes: Any) -> bytes:
    """Return the answer of a coordinator that says whatever it likes."""
    arrays = question if isinstance(question, dict) else wire.arrays_of(question)
    honest = Answer(DESCRIPTION.digest, wire.QUESTION, applied, applied, arrays=arrays)
    return wire.encode(msgspec.structs.replace(honest, **changes))


def want(path: Path, wanted: str) -> None:
    with SiteFile.open(path) as file:
        file.want(wanted)


def refusal(applied: int, code: str = "improper") -> bytes:
    return told(applied, {}, kind=wire.REFUSED, code=code, reason="because")


def exchange(site: Site, coordinator: Coordinator, times: int = 1, name: str = "north") -> None:
    for _ in range(times):
        data = site.request()
        assert data is not None
        site.receive(coordinator.handle(name, data))


def test_a_site_works_to_the_end(site: Site, coordinator: Coordinator, tmp_path: Path) -> None:
    work(site, lambda body, **_: coordinator.handle("north", body), sleep=lambda _: None)
    assert coordinator.over
    (row,) = coordinator.sites()
    assert (row.sequence, row.state) == (4, wire.FINISHED)
    assert charges(tmp_path) == 4
    book = ledgers.read(tmp_path / "north.ledger")
    assert row.declared is not None
    assert row.declared.epsilon == pytest.approx(book.spent.epsilon)
    assert row.declared.epsilon <= row.declared.epsilon_max == 1.0
    assert site.request() is None


FAULTS = [
    "deliver",
    "drop request",
    "drop answer",
    "duplicate",
    "garbage answer",
    "fault",
    "site again",
    "coordinator again",
]


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(FAULTS), min_size=8, max_size=30))
def test_whatever_gets_lost_on_the_way_each_release_is_paid_once_and_applied_once(
    tmp_path_factory: pytest.TempPathFactory, faults: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("FEDVI_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        folder = tmp_path_factory.mktemp("site")
        site, coordinator = open_site(folder, DESCRIPTION), open_coordinator(folder, DESCRIPTION)
        sent: dict[int, bytes] = {}
        for fault in [*faults, *["deliver"] * 20]:
            data = site.request()
            if data is None:
                break
            request = read(data)
            if request.kind != wire.POLL:
                assert sent.setdefault(request.sequence, data) == data  # the same bytes, always
            assert charges(folder) == len(sent)  # paid for before it is sent, and never again
            match fault:
                case "drop request":
                    pass
                case "drop answer":
                    coordinator.handle("north", data)
                case "duplicate":
                    got = [coordinator.handle("north", data) for _ in range(3)]
                    for each in got:
                        site.receive(each)
                case "garbage answer":
                    with pytest.raises(NotReached):
                        site.receive(coordinator.handle("north", data)[:-1])
                case "fault":
                    with pytest.raises(NotReached):
                        site.receive(refusal(0, "OperationalError"))
                case "site again":
                    site.close()
                    site = open_site(folder, DESCRIPTION)
                case "coordinator again":
                    coordinator.close()
                    coordinator = open_coordinator(folder, DESCRIPTION)
                case _:
                    site.receive(coordinator.handle("north", data))
        assert site.request() is None
        assert charges(folder) == len(sent) == 4
        (row,) = coordinator.sites()
        assert (row.sequence, row.refused) == (4, 0)
        assert coordinator.verify() < 1e-6
        site.close()
        coordinator.close()


def test_a_refused_release_is_rolled_back_and_the_next_one_accepted(
    site: Site, coordinator: Coordinator, tmp_path: Path
) -> None:
    exchange(site, coordinator, 2)  # a question and a release
    before = saved(tmp_path)["state"]
    first = site.request()
    assert read(first).sequence == 2
    site.receive(refusal(1))
    row = saved(tmp_path)
    assert (row["pending"], row["releases"], row["note"]) == (None, 1, "because")
    assert row["state"] == before
    exchange(site, coordinator)  # asks for its question
    second = site.request()
    assert read(second).sequence == 2
    assert second != first  # made anew, with new noise, and paid for again
    assert charges(tmp_path) == 3
    assert second is not None
    site.receive(coordinator.handle("north", second))
    assert coordinator.sites()[0].sequence == 2
    assert coordinator.verify() < 1e-6


def test_three_refusals_in_a_row_stop_a_site(site: Site, tmp_path: Path) -> None:
    for refused in range(1, 4):
        assert read(site.request()).kind == wire.POLL
        site.receive(told(0))
        assert read(site.request()).sequence == 1
        assert charges(tmp_path) == refused
        if refused < 3:
            site.receive(refusal(0))
    with pytest.raises(SiteRefused, match="because"):
        site.receive(refusal(0))
    assert saved(tmp_path)["releases"] == 0


def test_a_service_that_is_started_again_and_again_does_not_pay_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as where the memory is too small for an answer: it stops until people have looked."""
    chosen = description(("north",), 20)

    def killed(*_: object) -> None:
        raise MemoryError

    with open_coordinator(tmp_path, chosen) as coordinator:

        def start() -> None:
            with open_site(tmp_path, chosen) as site:
                exchange(site, coordinator, 2)

        start()
        for looked in range(1, 3):
            with monkeypatch.context() as patched:
                patched.setattr("fedvi.inference.private_client.checked_update", killed)
                for _ in range(MOST_LOST):
                    with pytest.raises(MemoryError):
                        start()
            with pytest.raises(SiteRefused, match=r"The last 5 answers were paid for and lost before they were kept"):
                start()
            assert charges(tmp_path) == 1 + MOST_LOST * looked
        start()
        assert coordinator.sites()[0].sequence == 2


def test_what_the_coordinator_cannot_help_does_not_count_as_a_refusal(site: Site) -> None:
    site.request()
    site.receive(told(0))
    site.request()
    for _ in range(5):
        with pytest.raises(NotReached):
            site.receive(refusal(0, "OperationalError"))
    site.receive(refusal(0))  # the first that counts


def asking(mean: Any = 0.0, precision: Any = 1.0, **changes: Any) -> Any:
    """Return a question with another q, or other numbers."""
    matrix = np.diag(np.full(3, precision, np.float32)) if np.ndim(precision) < 2 else np.asarray(precision, np.float32)
    q = FullGaussian(jnp.full(3, mean, jnp.float32), jnp.asarray(matrix))
    return dataclasses.replace(FORM, q=q, **changes)


WRONG: dict[str, Callable[[int], bytes]] = {
    "fewer releases": lambda made: told(made - 1 if made else 1),
    "more releases": lambda made: told(made + 1),
    "NaN": lambda made: told(made, asking(np.nan)),
    "infinite": lambda made: told(made, asking(precision=np.inf)),
    "improper": lambda made: told(made, asking(precision=-1.0)),
    "no variance": lambda made: told(made, asking(precision=1e-45)),
    "a mean beyond sense": lambda made: told(made, asking(-2e6)),
    "a variance beyond sense": lambda made: told(made, asking(precision=1e-13)),
    "no mean": lambda made: told(made, asking(3e38, 1e-3)),
    "a centre that is no number": lambda made: told(made, asking(centre=np.full(3, np.nan, np.float32))),
    "an infinite reach": lambda made: told(made, asking(reach=np.float32(np.inf))),
    "wrong shape": lambda made: told(made, asking(centre=np.zeros(4, np.float32))),
    "wrong type": lambda made: told(made, asking(reach=np.float64(1.0))),
    "nothing": lambda made: told(made, {}),
    "a posterior": lambda made: told(made, DESCRIPTION.spec.prior),
    "wait, and a question": lambda made: told(made, kind=wire.WAIT),
    "other federation": lambda made: told(made, federation="0" * 64),
    "refusal of another federation": lambda made: told(made, {}, kind=wire.REFUSED, federation="0" * 64),
    "out of sequence": lambda made: refusal(made, "out of sequence"),
    "other schema": lambda made: refusal(made, "other schema"),
    "unknown": lambda made: refusal(made, "unknown site"),
    "harmless, of another release": lambda made: refusal(made + 5),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("made", [0, 1], ids=["at the first question", "at a release"])
def test_a_coordinator_that_cannot_be_right_gets_nothing_more(
    wrong: str, made: int, site: Site, tmp_path: Path
) -> None:
    data = site.request()
    if made:
        site.receive(told(0))
        data = site.request()
    assert read(data).sequence == made
    paid, bad = charges(tmp_path), WRONG[wrong](made)
    for _ in range(3):
        with pytest.raises(SiteRefused):
            site.receive(bad)
        assert site.request() == data or not made
        assert charges(tmp_path) == paid == made
    site.close()
    with open_site(tmp_path, DESCRIPTION) as again:
        if made:
            assert again.request() == data
        assert charges(tmp_path) == paid


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\0" * 1000, b"fedvi\x01", bytes(10_000_000), wire.encode(Answer("x", wire.QUESTION, 0, 0))[:-1]],
    ids=["nothing", "zeros", "magic", "10 MB", "cut"],
)
def test_after_an_answer_that_is_none_the_same_bytes_are_sent_again(
    garbage: bytes, site: Site, coordinator: Coordinator, tmp_path: Path
) -> None:
    exchange(site, coordinator)
    data = site.request()
    for _ in range(5):
        with pytest.raises(NotReached):
            site.receive(garbage)
        assert site.request() == data
    assert charges(tmp_path) == 1
    exchange(site, coordinator)
    assert coordinator.version == 1


def spoilt(values: tuple[int, float]) -> dict[str, np.ndarray]:
    """Return a question of which one array is full of another number."""
    arrays = wire.arrays_of(FORM)
    key = str(values[0] % len(arrays))
    return {**arrays, key: np.full_like(arrays[key], values[1])}


arrays = st.one_of(
    st.just(wire.arrays_of(FORM)),
    st.just(wire.arrays_of(FORM)),
    st.tuples(st.integers(0, 20), st.floats(width=32)).map(spoilt),
    st.just({}),
)


lies = st.tuples(
    st.sampled_from([wire.QUESTION, wire.QUESTION, wire.WAIT, wire.REFUSED]),
    st.sampled_from([0, 0, 0, 0, -1, 1, 1000]),  # beside the truth
    st.integers(0, 2**31 - 1),
    st.sampled_from(["", "", "", "the end"]),
    st.sampled_from(["improper", "not finite", "absurd", "out of sequence", "unavailable", "", "x"]),
    arrays,
    st.booleans(),
)


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(lies, min_size=10, max_size=40))
def test_whatever_a_coordinator_answers_the_site_spends_no_more_than_it_planned(
    tmp_path_factory: pytest.TempPathFactory, answers: list[Any]
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("FEDVI_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        folder = tmp_path_factory.mktemp("site")
        site = open_site(folder, DESCRIPTION)
        seen: set[bytes] = set()
        for kind, off, version, stop, error, question, restart in answers:
            data = site.request()
            if data is None:
                break
            if (request := read(data)).kind != wire.POLL:
                seen.add(data)
            applied = max(request.sequence + off - (kind == wire.REFUSED and error in wire.HARMLESS), 0)
            lie = told(applied, question, kind=kind, version=version, stop=stop, code=error)
            try:
                site.receive(lie)
            except (NotReached, SiteRefused):
                if restart:  # a supervisor that does not know better
                    site.close()
                    site = open_site(folder, DESCRIPTION)
            book = ledgers.read(folder / "north.ledger")
            assert len(seen) <= sum(book.charged.values())
            assert all(times <= book.planned[event] for event, times in book.charged.items())
            assert book.spent.epsilon <= 1.0
        site.close()


def test_a_paused_site_releases_nothing_also_when_the_federation_ends(
    site: Site, coordinator: Coordinator, tmp_path: Path
) -> None:
    exchange(site, coordinator, 2)
    want(tmp_path / "north.db", wire.PAUSED)
    for _ in range(3):
        request = read(site.request())
        assert (request.kind, request.state) == (wire.POLL, wire.PAUSED)
        exchange(site, coordinator)
        assert site.waiting
    assert coordinator.sites()[0].state == wire.PAUSED
    coordinator.end("enough")
    exchange(site, coordinator)
    request = read(site.request())
    assert (request.kind, request.state, request.sequence) == (wire.POLL, wire.FINISHED, 1)
    exchange(site, coordinator)
    assert coordinator.over
    assert site.request() is None
    assert charges(tmp_path) == 1


def test_a_paused_site_goes_on_where_it_was(site: Site, coordinator: Coordinator, tmp_path: Path) -> None:
    exchange(site, coordinator, 2)
    want(tmp_path / "north.db", wire.PAUSED)
    exchange(site, coordinator)
    site.close()
    want(tmp_path / "north.db", wire.WORKING)
    with open_site(tmp_path, DESCRIPTION) as again:
        exchange(again, coordinator, 2)
        assert coordinator.sites()[0].sequence == 2
    assert coordinator.refusals() == []


def test_a_site_leaves_and_comes_back(tmp_path: Path) -> None:
    chosen = description(("north", "south"), 4)
    with open_coordinator(tmp_path, chosen) as coordinator, open_site(tmp_path, chosen, 1) as south:
        exchange(south, coordinator, 2, "south")
        want(tmp_path / "south.db", wire.LEFT)
        assert read(south.request()).state == wire.LEFT
        exchange(south, coordinator, 1, "south")
        assert coordinator.site("south").state in (wire.FINISHED, wire.LEFT)
        assert south.request() is None
        want(tmp_path / "south.db", wire.WORKING)
        exchange(south, coordinator, 1, "south")
        assert coordinator.site("south").state not in (wire.FINISHED, wire.LEFT)
        assert coordinator.sites()[1].sequence == 2
        assert charges(tmp_path, "south") == 2
    with pytest.raises(InputError, match="wanted"):
        want(tmp_path / "south.db", "spent")


def test_a_release_on_its_way_is_sent_before_a_site_leaves(
    site: Site, coordinator: Coordinator, tmp_path: Path
) -> None:
    exchange(site, coordinator)
    data = site.request()
    want(tmp_path / "north.db", wire.LEFT)
    assert site.request() == data
    exchange(site, coordinator)
    assert read(site.request()).state == wire.LEFT


@pytest.mark.parametrize("number", [0, 3, 5])
def test_a_sites_file_of_another_format_is_refused(site: Site, tmp_path: Path, number: int) -> None:
    site.close()
    with sqlite3.connect(tmp_path / "north.db") as connection:
        connection.execute(f"PRAGMA user_version = {number}")
    connection.close()
    with pytest.raises(InputError, match=f"the file of a site in format 4, got format {number}: .* Use that version"):
        open_site(tmp_path, DESCRIPTION)


def test_a_file_goes_with_its_ledger_and_its_federation_only(site: Site, tmp_path: Path) -> None:
    site.close()
    path, ledger = tmp_path / "north.db", tmp_path / "north.ledger"
    before = path.read_bytes()
    with pytest.raises(InputError, match="goes with another ledger"):
        site_of(path, DESCRIPTION, rows_of(5), Budget(1.0), tmp_path / "other.ledger")
    other = dataclasses.replace(DESCRIPTION, identity="another")
    with pytest.raises(InputError, match="another federation"):
        site_of(path, other, rows_of(0), Budget(1.0), ledger)
    assert path.read_bytes() == before
    with open_site(tmp_path, DESCRIPTION) as again:  # nothing was locked or changed for good
        assert again.request() is not None


def test_two_processes_cannot_work_for_one_site(site: Site, tmp_path: Path) -> None:
    with pytest.raises(LedgerInUse):
        open_site(tmp_path, DESCRIPTION)
    assert site.request() is not None


def test_a_site_that_starts_while_another_ends_goes_on_from_where_that_one_was(
    site: Site, coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other makes a release after the new one has looked at the file, and before it holds the ledger."""
    exchange(site, coordinator, 2)
    last = b""

    def late(*args: Any, **kwargs: Any) -> PrivateClient:
        nonlocal last
        last = site.request() or b""
        site.close()
        return PrivateClient.open(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr("fedvi.federation.worker.PrivateClient", type("Late", (), {"open": staticmethod(late)}))
        again = open_site(tmp_path, DESCRIPTION)
    with again:
        assert again.request() == last
        exchange(again, coordinator, 2)
        assert coordinator.sites()[0].sequence == 3
        assert charges(tmp_path) == 3


def test_a_full_disk_at_a_site_costs_one_update_and_the_next_has_the_same_number(
    site: Site, coordinator: Coordinator, tmp_path: Path
) -> None:
    exchange(site, coordinator)
    longer = DESCRIPTION.digest + " " * 1500  # so that a release needs one page more
    site._file.commit(dataclasses.replace(site._file.load(), note="x" * 2000, federation=longer))
    (pages,) = site._file._database.execute("PRAGMA page_count")[0]
    site._file._database.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(FileFailed, match="full"):
        site.request()
    assert charges(tmp_path) == 1
    assert saved(tmp_path)["pending"] is None
    site._file._database.execute("PRAGMA max_page_count = 1000000")
    exchange(site, coordinator)
    assert coordinator.sites()[0].sequence == 1
    assert charges(tmp_path) == 2
    while not coordinator.over:
        exchange(site, coordinator)
    assert coordinator.sites()[0].sequence == 3  # of four that the budget pays for
    assert charges(tmp_path) == 4
    assert coordinator.verify() < 1e-6


def test_a_site_that_has_answered_all_questions_waits_for_the_end(tmp_path: Path) -> None:
    chosen, folder = description(("north", "south"), 2), tmp_path
    with open_coordinator(folder, chosen) as coordinator, open_site(folder, chosen) as north:
        exchange(north, coordinator, 4)
        assert coordinator.sites()[0].state == wire.SPENT
        waiting = [north.waiting]
        assert read(north.request()).kind == wire.POLL
        assert charges(folder) == 2
        coordinator.end("enough")
        exchange(north, coordinator)
        waiting.append(north.waiting)
        assert waiting == [True, False]
        assert read(north.request()).state == wire.FINISHED
        exchange(north, coordinator)
        assert north.request() is None


def test_a_site_waits_for_the_others_before_its_next_question(tmp_path: Path) -> None:
    chosen, folder = description(("north", "south"), 2, start=Start(wait_for=2)), tmp_path
    with (
        open_coordinator(folder, chosen) as coordinator,
        open_site(folder, chosen) as north,
        open_site(folder, chosen, 1) as south,
    ):
        for _ in range(3):
            exchange(north, coordinator)
            assert north.waiting
        assert charges(folder) == 0  # nobody spends a budget alone
        exchange(south, coordinator, 2, "south")
        assert (south.waiting, coordinator.site("south").sequence) == (True, 1)
        exchange(north, coordinator, 2)
        assert (north.waiting, coordinator.site("north").sequence) == (False, 1)
        exchange(south, coordinator, 1, "south")
        assert not south.waiting
        assert (charges(folder), charges(folder, "south")) == (1, 1)


def linear_rows(number: int, rows: int) -> Any:
    """Return rows with y = x1 - x2 and noise of standard deviation 1/2."""
    x, _ = rows_of(number, rows)
    noise = np.random.default_rng([number, 1]).normal(0, 0.5, rows)
    return x, np.clip(x[:, 1] - x[:, 2] + noise, -8, 8).astype(np.float32)


@pytest.mark.parametrize("linear", [False, True], ids=["logistic", "linear"])
def test_two_sites_find_what_their_rows_say(linear: bool, tmp_path: Path) -> None:
    """Rows are drawn with weights 0, 1 and -1; noise of a linear model is not known beforehand."""
    chosen, folder = description(("north", "south"), 12, epsilon=20.0, rows=4000), tmp_path
    if linear:
        schema = dataclasses.replace(chosen.schema, target=NumberTarget("y", -8, 8, 0, 1))
        chosen = dataclasses.replace(chosen, schema=schema)
    with open_coordinator(folder, chosen) as coordinator:
        sites = {}
        for number, name in enumerate(chosen.sites):
            rows = linear_rows(number, 2000) if linear else rows_of(number, 2000)
            place = folder / f"{name}.db", chosen, rows, Budget(20.0), folder / f"{name}.ledger"
            sites[name] = site_of(*place)
        while not coordinator.over:
            for name, site in sites.items():
                if (data := site.request()) is not None:
                    site.receive(coordinator.handle(name, data))
        for site in sites.values():
            site.close()
        q, asked = coordinator.posterior, coordinator.asked
        assert (np.abs(np.asarray(q.mean) - [0, 1, -1]) < 4 * np.asarray(q.std)).all()
        assert (np.asarray(q.std) < 0.12).all()
        assert float(asked.arrived) <= float(asked.limit)
        assert coordinator.verify() < 1e-6
        if linear:
            x, y = linear_rows(9, 500)
            table = {"a": x[:, 1].astype(float), "b": x[:, 2].astype(float), "y": y.astype(float)}
            ((seen, _, accuracy, score),) = Scores(coordinator, table).measured()  # type: ignore[arg-type]
            assert (seen, accuracy) == (24, None)
            assert score == pytest.approx(-0.5 * np.log(2 * np.pi * 0.25) - 0.5, abs=0.1)  # as if all were known
            assert float(asked.noise_variance) == pytest.approx(0.25, rel=0.15)

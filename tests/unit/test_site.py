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
from fedvi.families import Gaussian
from fedvi.federation import wire
from fedvi.federation.coordinator import Coordinator
from fedvi.federation.site import Site
from fedvi.federation.site_file import SiteFile
from fedvi.federation.transports.base import run as work
from fedvi.federation.wire import Answer, Request
from fedvi.inference import PrivateClient
from fedvi.inference.noise_aware import QuadraticPart
from fedvi.numerics import Bounds, double_precision, on_row_grid, row_lengths, widen
from fedvi.privacy import Budget
from fedvi.privacy.clipping import clipped_sums, in_units
from fedvi.privacy.ledger import ledger as ledgers
from fedvi.sqlite import Locked
from site_exchanges import DESCRIPTION, saved
from small_federation import description, open_coordinator, open_site, rows_of

PRIOR = DESCRIPTION.spec.prior


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


def told(applied: int, q: Any = PRIOR, **changes: Any) -> bytes:
    """Return the answer of a coordinator that says whatever it likes."""
    arrays = q if isinstance(q, dict) else wire.arrays_of(q)
    honest = Answer(DESCRIPTION.digest, wire.POSTERIOR, applied, applied, arrays=arrays)
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
    work(site, lambda data: coordinator.handle("north", data), sleep=lambda _: None)
    assert coordinator.over
    (row,) = coordinator.sites()
    assert (row.updates, row.sequence, row.state) == (4, 5, wire.FINISHED)
    assert charges(tmp_path) == 5
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
        assert charges(folder) == len(sent) == 5
        (row,) = coordinator.sites()
        assert (row.sequence, row.updates, row.refused) == (5, 4, 0)
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
    exchange(site, coordinator)  # asks for q
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


def test_what_the_coordinator_cannot_help_does_not_count_as_a_refusal(site: Site) -> None:
    site.request()
    site.receive(told(0))
    site.request()
    for _ in range(5):
        with pytest.raises(NotReached):
            site.receive(refusal(0, "OperationalError"))
    site.receive(refusal(0))  # the first that counts


NAN = Gaussian(jnp.full(3, jnp.nan), jnp.ones(3))


IMPROPER = Gaussian(jnp.zeros(3), jnp.array([1.0, -1.0, 1.0]))


WRONG: dict[str, Callable[[int], bytes]] = {
    "fewer releases": lambda made: told(made - 1 if made else 1),
    "more releases": lambda made: told(made + 1),
    "NaN": lambda made: told(made, NAN),
    "infinite": lambda made: told(made, Gaussian(jnp.zeros(3), jnp.full(3, jnp.inf))),
    "improper": lambda made: told(made, IMPROPER),
    "no variance": lambda made: told(made, Gaussian(jnp.zeros(3), jnp.full(3, 1e-45))),
    "a mean beyond sense": lambda made: told(made, Gaussian(jnp.array([0.0, -2e6, 0.0]), jnp.ones(3))),
    "a variance beyond sense": lambda made: told(made, Gaussian(jnp.zeros(3), jnp.full(3, 1e-13))),
    "no mean": lambda made: told(made, Gaussian(jnp.full(3, 3e38), jnp.full(3, 1e-3))),
    "wrong shape": lambda made: told(made, Gaussian.standard(4)),
    "wrong type": lambda made: told(made, {"0": np.zeros(3), "1": np.ones(3)}),
    "nothing": lambda made: told(made, {}),
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
    [b"", b"\0" * 1000, b"fedvi\x01", bytes(10_000_000), wire.encode(Answer("x", wire.POSTERIOR, 0, 0))[:-1]],
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


arrays = st.one_of(
    st.just(wire.arrays_of(PRIOR)),
    st.just(wire.arrays_of(PRIOR)),
    st.tuples(
        st.lists(st.floats(width=32), min_size=3, max_size=3), st.lists(st.floats(width=32), min_size=3, max_size=3)
    ).map(lambda pair: {str(n): np.asarray(part, np.float32) for n, part in enumerate(pair)}),
    st.just({}),
)


lies = st.tuples(
    st.sampled_from([wire.POSTERIOR, wire.POSTERIOR, wire.POSTERIOR, wire.REFUSED]),
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
        for kind, off, version, stop, error, q, restart in answers:
            data = site.request()
            if data is None:
                break
            if (request := read(data)).kind != wire.POLL:
                seen.add(data)
            applied = max(request.sequence + off - (kind == wire.REFUSED and error in wire.HARMLESS), 0)
            lie = told(applied, q, kind=kind, version=version, stop=stop, code=error)
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
    exchange(site, coordinator, 3)
    assert charges(tmp_path) == 1
    want(tmp_path / "north.db", wire.WORKING)
    request = read(site.request())
    assert (request.kind, request.state, request.sequence) == (wire.WIDTH, wire.FINISHED, 2)
    exchange(site, coordinator)
    assert coordinator.over
    assert site.request() is None
    assert charges(tmp_path) == 2


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


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_sites_file_of_another_format_is_refused(site: Site, tmp_path: Path, number: int) -> None:
    site.close()
    with sqlite3.connect(tmp_path / "north.db") as connection:
        connection.execute(f"PRAGMA user_version = {number}")
    connection.close()
    with pytest.raises(InputError, match=f"the file of a site in format 2, got format {number}: .* Use that version"):
        open_site(tmp_path, DESCRIPTION)


def test_a_file_goes_with_its_ledger_and_its_federation_only(site: Site, tmp_path: Path) -> None:
    site.close()
    path, ledger = tmp_path / "north.db", tmp_path / "north.ledger"
    before = path.read_bytes()
    with pytest.raises(InputError, match="goes with another ledger"):
        Site.open(path, DESCRIPTION, rows_of(5), Budget(1.0), tmp_path / "other.ledger")
    other = dataclasses.replace(DESCRIPTION, identity="another")
    with pytest.raises(InputError, match="another federation"):
        Site.open(path, other, rows_of(0), Budget(1.0), ledger)
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
        patched.setattr("fedvi.federation.site.PrivateClient", type("Late", (), {"open": staticmethod(late)}))
        again = open_site(tmp_path, DESCRIPTION)
    with again:
        assert again.request() == last
        exchange(again, coordinator, 2)
        assert coordinator.sites()[0].sequence == 3
        assert charges(tmp_path) == 3


def test_killed_after_the_width_was_paid_for_a_site_finishes_without_it(
    site: Site, coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange(site, coordinator, 2)
    coordinator.end("enough")
    exchange(site, coordinator)

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(SiteFile, "commit", killed)
        with pytest.raises(KeyboardInterrupt):
            site.request()
    site.close()
    paid = charges(tmp_path)
    with open_site(tmp_path, DESCRIPTION) as again:
        work(again, lambda data: coordinator.handle("north", data), sleep=lambda _: None)
    assert charges(tmp_path) == paid == 3
    assert coordinator.over
    assert coordinator.sites()[0].width is None
    assert coordinator.refusals() == []


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
    assert coordinator.sites()[0].updates == 3  # of four that the budget pays for
    assert charges(tmp_path) == 5


def test_a_site_that_has_spent_its_budget_waits_for_the_end(tmp_path: Path) -> None:
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
        assert read(north.request()).kind == wire.WIDTH


extreme = st.sampled_from([0.0, 1e-30, -1e-3, 1.0, -50.0, 1e4, -1e10, 1e19, 3e37, -3e38])


@settings(max_examples=30)
@given(
    st.lists(extreme, min_size=3, max_size=3),
    st.lists(st.sampled_from([1e-37, 1e-20, 1e-5, 1.0, 1e5, 1e20, 3e38]), min_size=3, max_size=3),
    st.integers(0, 199),
)
def test_one_row_moves_the_private_sums_by_no_more_than_the_clip_norm_whatever_posterior_is_sent(
    natural_mean: list[float], precision: list[float], row: int
) -> None:
    q = Gaussian(jnp.asarray(natural_mean, jnp.float32), jnp.asarray(precision, jnp.float32))
    if not bool(q.is_proper()):
        return  # refused by `receive`, as are some of the others
    recipe, (x, y) = DESCRIPTION.spec, rows_of(0)
    bound = DESCRIPTION.schema.feature_bound
    x, _ = on_row_grid(x, bound)
    solver: Any = recipe.algorithm.solver
    part = QuadraticPart(recipe.model, solver.share, solver.weight)  # type: ignore[arg-type]
    clip = float(solver.mechanism.clip_norm)
    noise = jnp.zeros(recipe.model.noise_shape(3), jnp.float32)
    rows = jnp.asarray(x), jnp.asarray(y), jnp.asarray(row_lengths(x))

    def sums(counted: np.ndarray) -> np.ndarray:
        with double_precision():
            bounds = Bounds(widen(clip), widen(bound), len(x))
            vectors = part.row_vectors(q.coordinates(), noise, jnp.asarray(bound, jnp.float32))(*rows)
            total = in_units(clipped_sums(vectors, widen(counted), bounds), vectors, bounds)
            return np.concatenate([np.asarray(total.slope), np.asarray(total.curvature)])

    everybody = np.ones(len(x))
    but_one, alone = (everybody - (np.arange(len(x)) == row), 1.0 * (np.arange(len(x)) == row))
    flat = np.array([sums(everybody), sums(but_one), sums(alone)])
    assert np.isfinite(flat).all()
    assert np.linalg.norm(flat[0] - flat[1]) <= clip
    np.testing.assert_allclose(flat[0] - flat[1], flat[2], rtol=0, atol=1e-12 * len(x) * clip)  # its own numbers alone

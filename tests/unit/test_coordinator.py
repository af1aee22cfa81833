"""The durable coordinator: q is prior * product of stored factors, whatever was sent, killed or full meanwhile."""

from __future__ import annotations

import dataclasses
import random
import resource
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinators import DESCRIPTION, content
from fedvi.errors import InputError
from fedvi.federation import wire
from fedvi.federation.coordinator import REFUSALS, Coordinator
from fedvi.federation.description import StoppingRule
from fedvi.inference import Release, Server
from small_federation import answer, description, factor, message, open_coordinator, poll

HUGE = bytes(100_000_000)


@pytest.fixture
def coordinator(tmp_path: Path) -> Any:
    with open_coordinator(tmp_path, DESCRIPTION) as opened:
        yield opened


def posterior_of(factors: list[dict[str, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return natural mean and precision of prior * product, in double precision: the oracle."""
    prior = DESCRIPTION.spec.prior
    mean, precision, noise = (
        sum((np.asarray(each[part], np.float64) for each in factors), np.zeros(3)) for part in ("0", "1", "2")
    )
    known = np.maximum(precision, 0)
    shrink = np.where(known > 0, known / np.where(known > 0, known + noise, 1), 0)
    return np.asarray(prior.natural_mean) + mean * shrink, np.asarray(prior.precision) + known * shrink


def changed(arrays: dict[str, np.ndarray], part: str, value: Any) -> dict[str, np.ndarray]:
    return {**arrays, part: np.asarray(value, np.float32)}


def hostile(what: str, number: int, seed: int, last: bytes) -> tuple[str, bytes]:
    """Return an error and a message that must be refused with it, by a site whose next release has this number."""
    good = factor(seed)
    match what:
        case "other bytes":
            return "out of sequence", message(DESCRIPTION, number - 1, factor(seed + 1))
        case "gap":
            return "out of sequence", message(DESCRIPTION, number + 1 + seed % 3, good)
        case "step back":
            return "out of sequence", message(DESCRIPTION, max(number - 2, 0), good)
        case "non-finite":
            return "not finite", message(DESCRIPTION, number, changed(good, str(seed % 3), [1, np.nan, 2]))
        case "infinite":
            return "not finite", message(DESCRIPTION, number, changed(good, str(seed % 3), [1, -np.inf, 2]))
        case "improper":
            return "improper", message(DESCRIPTION, number, changed(good, "2", [1, -1e-3, 1]))
        case "absurd":
            return "absurd", message(DESCRIPTION, number, changed(good, str(seed % 3), [0, 3e38, 0]))
        case "wrong shape":
            return "malformed", message(DESCRIPTION, number, changed(good, "1", [1.0] * (seed % 3)))
        case "wrong type":
            return "malformed", message(DESCRIPTION, number, {**good, "1": np.ones(3)})
        case "one array more":
            return "malformed", message(DESCRIPTION, number, {**good, "3": np.ones(3, np.float32)})
        case "nothing in it":
            return "malformed", message(DESCRIPTION, number, {})
        case "from the future":
            return "malformed", message(DESCRIPTION, number, good, based_on=10_000)
        case "other schema":
            return "other schema", message(DESCRIPTION, number, good, schema="0" * 64)
        case "other federation":
            return "other federation", message(DESCRIPTION, number, good, federation="0" * 64)
        case "100 MB":
            return "malformed", HUGE
        case "garbage":
            return "malformed", np.random.default_rng(seed).bytes(seed % 300)
        case "truncated":
            return "malformed", last[: seed % max(len(last), 1)]
        case "wide width":
            return "absurd", message(DESCRIPTION, number, {"0": np.asarray(1e300)}, wire.WIDTH)
        case "no width":
            return "malformed", message(DESCRIPTION, number, {"0": np.asarray(np.nan)}, wire.WIDTH)
        case "two widths":
            return "malformed", message(DESCRIPTION, number, {"0": np.ones(2)}, wire.WIDTH)
        case "poll with other number":
            return "out of sequence", poll(DESCRIPTION, number + seed % 3)
        case "poll with arrays":
            return "malformed", message(DESCRIPTION, number - 1, good, wire.POLL)
    raise AssertionError(what)


HOSTILE = [
    "other bytes",
    "gap",
    "step back",
    "non-finite",
    "infinite",
    "improper",
    "absurd",
    "wrong shape",
    "wrong type",
    "one array more",
    "nothing in it",
    "from the future",
    "other schema",
    "other federation",
    "100 MB",
    "garbage",
    "truncated",
    "wide width",
    "no width",
    "two widths",
    "poll with other number",
    "poll with arrays",
]


steps = st.tuples(
    st.sampled_from(DESCRIPTION.sites),
    st.sampled_from(["next", "next", "next", "repeat", "poll", "reopen", "unknown site", *HOSTILE]),
    st.integers(0, 10**6),
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(steps, min_size=1, max_size=14))
def test_the_posterior_is_prior_times_stored_factors_whatever_is_sent(
    tmp_path_factory: pytest.TempPathFactory, sent: list[tuple[str, str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("coordinator")
    path = folder / "coordinator.db"
    coordinator = open_coordinator(folder, DESCRIPTION)
    stored = {name: {str(part): np.zeros(3) for part in range(3)} for name in DESCRIPTION.sites}
    number, last = dict.fromkeys(DESCRIPTION.sites, 0), dict.fromkeys(DESCRIPTION.sites, b"")
    refused = dict.fromkeys((*DESCRIPTION.sites, "stranger"), 0)
    version = 0
    for name, what, seed in sent:
        before = content(path)
        match what:
            case "next":
                last[name] = message(DESCRIPTION, number[name] + 1, factor(seed))
                got = answer(coordinator.handle(name, last[name]))
                number[name], stored[name], version = number[name] + 1, factor(seed), version + 1
            case "repeat" if number[name]:
                got = answer(coordinator.handle(name, last[name]))
            case "poll" | "repeat":
                got = answer(coordinator.handle(name, poll(DESCRIPTION, number[name])))
            case "reopen":
                coordinator.close()
                coordinator = open_coordinator(folder, DESCRIPTION)
                got = answer(coordinator.handle(name, poll(DESCRIPTION, number[name])))
            case _:
                if what == "unknown site":
                    name, error, data = "stranger", "unknown site", message(DESCRIPTION, 1, factor(seed))
                else:
                    error, data = hostile(what, number[name] + 1, seed, last[name])
                got = answer(coordinator.handle(name, data))
                refused[name] += 1
                assert (got.kind, got.code, dict(got.arrays)) == (wire.REFUSED, error, {})
                assert error in wire.REFUSALS
                assert content(path) == before
                assert coordinator.refusals(1)[0].site == name
                assert coordinator.refusals(1)[0].code == error
                assert got.reason
                continue
        assert (got.kind, got.applied, got.version) == (wire.POSTERIOR, number[name], version)
        mean, precision = posterior_of(list(stored.values()))
        np.testing.assert_allclose(got.arrays["0"], mean, rtol=2e-5, atol=2e-4)
        np.testing.assert_allclose(got.arrays["1"], precision, rtol=2e-5, atol=2e-4)
    assert coordinator.verify() < 1e-6
    assert coordinator.version == version
    assert {row.name: row.sequence for row in coordinator.sites()} == number
    assert {row.name: row.refused for row in coordinator.sites()} == {n: refused[n] for n in DESCRIPTION.sites}
    assert len(coordinator.refusals(10**6)) == sum(refused.values())
    coordinator.close()


@pytest.mark.parametrize("what", HOSTILE)
def test_each_hostile_message_is_refused_and_the_next_good_one_accepted(
    what: str, coordinator: Coordinator, tmp_path: Path
) -> None:
    first = message(DESCRIPTION, 1, factor(1))
    coordinator.handle("north", first)
    before = content(tmp_path / "coordinator.db")
    error, data = hostile(what, 2, 5, first)
    began = time.perf_counter()
    got = answer(coordinator.handle("north", data))
    assert time.perf_counter() - began < 2
    assert (got.kind, got.code, got.applied, got.version) == (wire.REFUSED, error, 1, 1)
    assert content(tmp_path / "coordinator.db") == before
    assert answer(coordinator.handle("north", message(DESCRIPTION, 2, factor(2)))).applied == 2


def test_a_release_that_takes_the_posterior_beyond_what_sites_look_at_is_refused(coordinator: Coordinator) -> None:
    most = 1e6 / DESCRIPTION.schema.feature_bound
    for size, error in ((0.6 * most, "absurd"), (0.4 * most, "")):  # of a mean, where the prior's precision is 1
        arrays = {"0": np.array([0, -size, 0], np.float32), "1": np.full(3, 1e-9, np.float32)}
        got = answer(coordinator.handle("north", message(DESCRIPTION, 1, {**arrays, "2": np.zeros(3, np.float32)})))
        assert (got.code, coordinator.version) == (error, 0 if error else 1)


def test_the_same_bytes_twice_are_applied_once_and_answered_with_the_current_posterior(
    coordinator: Coordinator,
) -> None:
    north = message(DESCRIPTION, 1, factor(1))
    coordinator.handle("north", north)
    after = answer(coordinator.handle("south", message(DESCRIPTION, 1, factor(2))))
    for times in range(1, 4):
        again = answer(coordinator.handle("north", north))
        assert (again.applied, again.version) == (1, 2)
        assert (again.arrays["0"] == after.arrays["0"]).all()
        assert (again.arrays["1"] == after.arrays["1"]).all()
        assert coordinator.sites()[0].repeated == times
    assert coordinator.sites()[0].updates == 1


def test_identity_comes_from_the_caller_and_not_from_the_message(coordinator: Coordinator) -> None:
    """The same bytes from two sites are releases of both."""
    data = message(DESCRIPTION, 1, factor(1))
    assert answer(coordinator.handle("north", data)).version == 1
    assert answer(coordinator.handle("south", data)).version == 2
    one = factor(1)
    mean, _ = posterior_of([one, one])
    np.testing.assert_allclose(coordinator.posterior.natural_mean, mean, rtol=1e-5)


def test_a_site_that_has_said_its_last_releases_nothing_more(coordinator: Coordinator) -> None:
    coordinator.handle("north", message(DESCRIPTION, 1, factor(1)))
    width = message(DESCRIPTION, 2, {"0": np.asarray(1.5)}, wire.WIDTH, state=wire.FINISHED)
    assert answer(coordinator.handle("north", width)).applied == 2
    assert answer(coordinator.handle("north", width)).applied == 2  # repeated
    for data in (message(DESCRIPTION, 3, factor(3)), message(DESCRIPTION, 3, {"0": np.asarray(2.0)}, wire.WIDTH)):
        assert answer(coordinator.handle("north", data)).code == "out of sequence"
    assert coordinator.sites()[0].width == 1.5
    assert coordinator.site("north").state in (wire.FINISHED, wire.LEFT)
    assert coordinator.verify() < 1e-6


def test_the_file_gives_the_posterior_that_a_coordinator_in_memory_has(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    recipe = DESCRIPTION.spec
    memory = Server.start(
        recipe.prior, DESCRIPTION.sites, recipe.algorithm.first_factor(recipe.prior), DESCRIPTION.schema.digest
    )
    rng = random.Random(0)
    number = dict.fromkeys(DESCRIPTION.sites, 0)
    for turn in range(60):
        name = rng.choice(DESCRIPTION.sites)
        number[name] += 1
        parts = factor(turn)
        coordinator.handle(name, message(DESCRIPTION, number[name], parts))
        tree = wire.tree_of(recipe.algorithm.first_factor(recipe.prior), parts)
        memory = memory.receive(name, Release(tree, jnp.int32(number[name]), schema=DESCRIPTION.schema.digest))
    coordinator.close()
    with Coordinator.open(tmp_path / "coordinator.db") as rebuilt:
        for part in ("natural_mean", "precision"):
            assert (np.asarray(getattr(rebuilt.posterior, part)) == np.asarray(getattr(memory.posterior, part))).all()
        assert rebuilt.verify() < 1e-6
        assert rebuilt.version == 60
        assert all(map(np.array_equal, *map(jax.tree.leaves, (rebuilt.factors(), memory.state.factors))))


def test_verification_rejects_a_product_that_is_not_that_of_the_factors(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    coordinator.handle("north", message(DESCRIPTION, 1, factor(1)))
    assert coordinator.verify() < 1e-6
    other = wire.pack(wire.tree_of(DESCRIPTION.spec.algorithm.first_factor(DESCRIPTION.spec.prior), factor(2)))
    with sqlite3.connect(tmp_path / "coordinator.db") as connection:
        connection.execute("UPDATE federation SET product = ?", (other,))
    connection.close()
    assert coordinator.verify() > 0.1
    with sqlite3.connect(tmp_path / "coordinator.db") as connection:
        connection.execute("DELETE FROM applied")
    connection.close()
    with pytest.raises(InputError, match="updates of 'north' are missing"):
        coordinator.verify()


def test_only_so_many_refusals_are_kept_and_all_are_counted(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedvi.federation.coordinator.REFUSALS", 5)
    for number in range(12):
        coordinator.handle("north", b"garbage %d" % number)
    assert len(coordinator.refusals(100)) == 5 < REFUSALS
    assert coordinator.sites()[0].refused == 12


def test_a_late_site_joins_with_the_factor_one(coordinator: Coordinator) -> None:
    coordinator.handle("north", message(DESCRIPTION, 1, factor(1)))
    before = np.asarray(coordinator.posterior.natural_mean)
    assert answer(coordinator.handle("west", message(DESCRIPTION, 1, factor(2)))).code == "unknown site"
    coordinator.add_site("west")
    assert coordinator.names == (*DESCRIPTION.sites, "west")
    assert (np.asarray(coordinator.posterior.natural_mean) == before).all()
    assert answer(coordinator.handle("west", message(DESCRIPTION, 1, factor(2)))).applied == 1
    assert coordinator.verify() < 1e-6
    with pytest.raises(InputError, match="takes part already"):
        coordinator.add_site("west")
    for wrong in ("", "server", "North", "a b", "../west"):
        with pytest.raises(InputError, match="a site's name"):
            coordinator.add_site(wrong)


def test_a_site_that_leaves_keeps_its_factor_and_may_come_back(coordinator: Coordinator) -> None:
    coordinator.handle("north", message(DESCRIPTION, 1, factor(1)))
    got = answer(coordinator.handle("north", poll(DESCRIPTION, 1, wire.LEFT)))
    assert coordinator.site("north").state in (wire.FINISHED, wire.LEFT)
    np.testing.assert_allclose(got.arrays["0"], posterior_of([factor(1)])[0], rtol=1e-5)
    coordinator.handle("north", poll(DESCRIPTION, 1, wire.PAUSED))
    assert coordinator.site("north").state not in (wire.FINISHED, wire.LEFT)
    assert coordinator.sites()[0].state == wire.PAUSED
    assert answer(coordinator.handle("north", message(DESCRIPTION, 2, factor(2)))).applied == 2


def test_a_site_makes_as_many_updates_as_were_agreed_and_says_one_last_number(tmp_path: Path) -> None:
    chosen = description(updates=2)
    with open_coordinator(tmp_path, chosen) as coordinator:

        def sent(number: int, arrays: dict[str, Any], kind: str = wire.FACTOR) -> wire.Answer:
            return answer(coordinator.handle("north", message(chosen, number, arrays, kind)))

        assert [sent(number, factor(number)).applied for number in (1, 2)] == [1, 2]
        more = sent(3, factor(3))
        assert (more.code, more.applied, coordinator.version) == ("out of sequence", 2, 2)
        assert "at most 2 updates" in more.reason
        assert sent(2, factor(2)).kind == wire.POSTERIOR  # once more the same is no update more
        width = {"0": np.asarray(140.0)}
        assert sent(3, width, wire.WIDTH).applied == 3
        assert sent(4, width, wire.WIDTH).code == "out of sequence"
        assert sent(4, factor(4)).code == "out of sequence"
        assert sent(3, width, wire.WIDTH).applied == 3


@pytest.mark.parametrize("last", [wire.SPENT, wire.FINISHED, wire.LEFT])
def test_it_ends_when_every_site_has_spent_its_budget_or_left_and_not_before(
    last: str, coordinator: Coordinator
) -> None:
    coordinator.handle("north", poll(DESCRIPTION, 0, wire.SPENT))
    coordinator.handle("south", poll(DESCRIPTION, 0, wire.LEFT))
    assert coordinator.stop == ""  # east was never heard of
    coordinator.handle("east", poll(DESCRIPTION, 0, wire.PAUSED))
    assert coordinator.stop == ""
    assert (
        answer(coordinator.handle("east", poll(DESCRIPTION, 0, last))).stop == "every site has spent its budget or left"
    )
    assert answer(coordinator.handle("north", poll(DESCRIPTION, 0, wire.WORKING))).stop  # an end is an end
    assert not coordinator.over  # north may still release the last number
    coordinator.handle("north", poll(DESCRIPTION, 0, wire.FINISHED))
    assert coordinator.over == (last != wire.SPENT)


def test_it_ends_after_so_many_updates_in_a_row_that_changed_little(tmp_path: Path) -> None:
    calm = dataclasses.replace(DESCRIPTION, stop=StoppingRule(change=1e-3, quiet=3))
    with open_coordinator(tmp_path, calm) as coordinator:
        for name in ("south", "east"):
            coordinator.handle(name, poll(calm, 0, wire.LEFT))
        stops = []
        for number, seed in enumerate([1, 1, 1, 2, 2, 2], 1):  # the first of each seed changes much
            stops.append(answer(coordinator.handle("north", message(calm, number, factor(seed)))).stop)
        assert stops == [""] * 6
        end = answer(coordinator.handle("north", message(calm, 7, factor(2)))).stop
        assert end == "3 updates in a row changed the posterior by less than 0.001 nats"
        assert answer(coordinator.handle("south", poll(calm, 0))).stop == end


def test_no_site_ends_it_by_its_own_calm_while_others_have_more_to_say(tmp_path: Path) -> None:
    calm = dataclasses.replace(DESCRIPTION, stop=StoppingRule(change=1e-3, quiet=3))
    with open_coordinator(tmp_path, calm) as coordinator:
        number = dict.fromkeys(calm.sites, 0)

        def stop_after(name: str, seed: int) -> str:
            number[name] += 1
            return answer(coordinator.handle(name, message(calm, number[name], factor(seed)))).stop

        assert {stop_after("south", 1) for _ in range(9)} == {""}  # north and east have not even joined
        assert {stop_after("north", 2) for _ in range(9)} == {""}
        assert (
            answer(coordinator.handle("east", poll(calm, 0, wire.PAUSED))).stop == ""
        )  # south's calm was before north's
        assert stop_after("south", 1) == "9 updates in a row changed the posterior by less than 0.001 nats"


def test_a_larger_change_begins_the_count_of_calm_updates_anew_for_every_site(tmp_path: Path) -> None:
    chosen = description(updates=600, stop=StoppingRule(change=1e-3, quiet=4))
    with open_coordinator(tmp_path, chosen) as coordinator:
        sent = [("north", 1), ("south", 2), ("north", 1), ("south", 2), ("north", 1), ("south", 3)]
        sent += [("north", 1), ("north", 1), ("north", 1), ("north", 1), ("south", 3)]
        stops, number = [], dict.fromkeys(chosen.sites, 0)
        for name, seed in sent:
            number[name] += 1
            stops.append(answer(coordinator.handle(name, message(chosen, number[name], factor(seed)))).stop)
        assert stops[:-1] == [""] * 10
        assert stops[-1] == "5 updates in a row changed the posterior by less than 0.001 nats"


def test_it_ends_so_many_hours_after_the_first_release(tmp_path: Path) -> None:
    timed = dataclasses.replace(DESCRIPTION, stop=StoppingRule(hours=2.0))
    with open_coordinator(tmp_path, timed) as coordinator:
        now = 1e9
        coordinator.clock = lambda: now
        coordinator.handle("south", poll(timed, 0))
        now += 1e6  # nothing counts before the first release
        coordinator.handle("north", message(timed, 1, factor(1)))
        now += 7199
        assert answer(coordinator.handle("south", poll(timed, 0))).stop == ""
        now += 2
        assert answer(coordinator.handle("south", poll(timed, 0))).stop == "2 hours have passed"
        assert (
            answer(coordinator.handle("north", message(timed, 2, factor(2)))).applied == 2
        )  # what was on its way counts


def test_without_a_rule_neither_time_nor_calm_ends_it(coordinator: Coordinator) -> None:
    now = 1e9
    coordinator.clock = lambda: now
    for number in range(1, 120):
        now += 1e6
        assert answer(coordinator.handle("north", message(DESCRIPTION, number, factor(1)))).stop == ""


def test_a_full_disk_is_an_answer_that_is_no_refusal_and_changes_nothing(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    path = tmp_path / "coordinator.db"
    coordinator.handle("north", message(DESCRIPTION, 1, factor(1)))
    before = content(path)
    (pages,) = coordinator._database.execute("PRAGMA page_count")[0]
    coordinator._database.execute(f"PRAGMA max_page_count = {pages}")
    full = number = 1
    while full == 1 and number < 500:  # until the last page is full
        number += 1
        before = content(path)
        got = answer(coordinator.handle("north", message(DESCRIPTION, number, factor(number))))
        full = 0 if got.kind == wire.REFUSED else 1
    assert not full
    assert "full" in got.reason
    assert got.code == wire.UNAVAILABLE not in wire.REFUSALS  # the site sends the same bytes again
    assert content(path) == before
    assert answer(coordinator.handle("north", message(DESCRIPTION, number, factor(number)))).kind == wire.REFUSED
    coordinator.handle("north", b"garbage")  # its refusal cannot be written down either
    coordinator._database.execute("PRAGMA max_page_count = 1000000")
    assert answer(coordinator.handle("north", message(DESCRIPTION, number, factor(number)))).applied == number
    assert coordinator.verify() < 1e-6


def test_a_disk_that_is_full_when_a_transaction_ends_is_an_answer_that_changes_nothing(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    path, first = tmp_path / "coordinator.db", message(DESCRIPTION, 1, factor(1))
    coordinator.handle("north", first)
    before, log = content(path), (tmp_path / "coordinator.db-wal").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log + 5000, hard))  # in the middle of what a release writes
    try:
        answers = [answer(coordinator.handle("north", message(DESCRIPTION, 2, factor(2)))) for _ in range(3)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [got.kind for got in answers] == [wire.REFUSED] * 3
    assert {got.code for got in answers} == {wire.UNAVAILABLE}
    assert content(path) == before
    assert answer(coordinator.handle("north", message(DESCRIPTION, 2, factor(2)))).applied == 2
    assert coordinator.verify() < 1e-6


def test_a_file_of_which_another_process_holds_the_lock_is_an_answer_too(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    coordinator._database.execute("PRAGMA busy_timeout = 50")
    other = sqlite3.connect(tmp_path / "coordinator.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    got = answer(coordinator.handle("north", message(DESCRIPTION, 1, factor(1))))
    assert (got.kind, got.code) == (wire.REFUSED, wire.UNAVAILABLE)
    other.execute("ROLLBACK")
    other.close()
    assert answer(coordinator.handle("north", message(DESCRIPTION, 1, factor(1)))).applied == 1


def test_threads_that_handle_messages_of_different_sites_lose_nothing(coordinator: Coordinator) -> None:
    def handle(name: str, offset: int) -> None:
        for number in range(1, 31):
            coordinator.handle(name, message(DESCRIPTION, number, factor(offset + number)))
            coordinator.handle(name, poll(DESCRIPTION, number))

    threads = [threading.Thread(target=handle, args=(name, 100 * n)) for n, name in enumerate(DESCRIPTION.sites)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert coordinator.version == 90
    assert coordinator.refusals() == []
    assert coordinator.verify() < 1e-6
    mean, precision = posterior_of([factor(100 * n + 30) for n in range(3)])
    np.testing.assert_allclose(coordinator.posterior.natural_mean, mean, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(coordinator.posterior.precision, precision, rtol=1e-4, atol=1e-3)


def test_what_is_no_file_of_a_coordinator_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.db"
    with pytest.raises(InputError, match="got none"):
        Coordinator.open(path)
    for wrong in (b"", b"not a database at all" * 100):
        path.write_bytes(wrong)
        with pytest.raises(InputError, match="damaged"):
            Coordinator.open(path)
        with pytest.raises(InputError, match="exists already"):
            Coordinator.create(path, DESCRIPTION)
        path.unlink()


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_coordinators_file_of_another_format_is_refused(
    coordinator: Coordinator, tmp_path: Path, number: int
) -> None:
    coordinator._database.execute(f"PRAGMA user_version = {number}")
    with pytest.raises(InputError, match=f"a coordinator in format 2, got format {number}: .* Use that version"):
        Coordinator.open(tmp_path / "coordinator.db")


def test_a_coordinator_is_not_made_over_the_log_of_one_that_is_gone(tmp_path: Path) -> None:
    """SQLite would play the old log into the new file."""
    coordinator = open_coordinator(tmp_path, DESCRIPTION)
    coordinator.handle("north", message(DESCRIPTION, 1, factor(1)))
    copy = (tmp_path / "coordinator.db-wal").read_bytes()
    coordinator.close()
    (tmp_path / "coordinator.db").unlink()
    (tmp_path / "coordinator.db-wal").write_bytes(copy)
    with pytest.raises(InputError, match="left over"):
        open_coordinator(tmp_path, DESCRIPTION)

"""The durable coordinator: q is read out of the stored answers, whatever was sent, killed or full meanwhile."""

from __future__ import annotations

import dataclasses
import resource
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinators import DESCRIPTION, content
from fedvi.errors import FileFailed, InputError
from fedvi.families.messages import Messages
from fedvi.federation import wire
from fedvi.federation.coordinator import REFUSALS, Coordinator
from fedvi.federation.store.status import status_of
from fedvi.federation.store.turns import Start, StoppingRule
from fedvi.inference import Release, Server
from fedvi.inference.reading import read
from fedvi.pytree import take
from small_federation import ROWS, answer, answers, description, message, open_coordinator, poll, release

HUGE = bytes(100_000_000)
SEEDS = {name: number for number, name in enumerate(DESCRIPTION.sites)}
NAMES, QUESTIONS = DESCRIPTION.sites, 6


@pytest.fixture
def coordinator(tmp_path: Path) -> Any:
    with open_coordinator(tmp_path, DESCRIPTION) as opened:
        yield opened


def send(coordinator: Coordinator, name: str, number: int) -> wire.Answer:
    """Let a site answer question `number`."""
    return answer(coordinator.handle(name, release(coordinator.description, number, SEEDS.get(name, 9))))


def ask(coordinator: Coordinator, name: str, number: int, state: str = wire.WORKING) -> wire.Answer:
    """Let a site that has answered `number` questions ask for the next."""
    return answer(coordinator.handle(name, poll(coordinator.description, number, state)))


def changed(arrays: dict[str, np.ndarray], part: int, place: Any, value: float) -> dict[str, np.ndarray]:
    """Return answers of which one number is another."""
    copies = {key: array.copy() for key, array in arrays.items()}
    copies[str(part)][place] = value
    return copies


def hostile(what: str, number: int, seed: int, last: bytes, own: int = 0) -> tuple[str, bytes]:
    """Return an error and a message that must be refused with it, by a site whose next answer has this number."""
    good, k = answers(DESCRIPTION, own, number), number - 1
    match what:
        case "other bytes":
            return "out of sequence", release(DESCRIPTION, number - 1, 5)
        case "gap":
            return "out of sequence", release(DESCRIPTION, min(number + 1 + seed % 3, QUESTIONS), own)
        case "step back":
            return "out of sequence", release(DESCRIPTION, max(number - 2, 0), 5)
        case "non-finite":
            place = (k, seed % 10) if seed % 3 == 0 else k
            return "not finite", message(DESCRIPTION, number, changed(good, seed % 3, place, np.nan))
        case "infinite":
            place = (k, seed % 10) if seed % 3 == 0 else k
            return "not finite", message(DESCRIPTION, number, changed(good, seed % 3, place, -np.inf))
        case "negative noise":
            return "improper", message(DESCRIPTION, number, changed(good, 1, k, -1e-3))
        case "negative rows":
            return "improper", message(DESCRIPTION, number, changed(good, 2, k, -1))
        case "no noise":
            return "absurd", message(DESCRIPTION, number, changed(good, 1, k, 0))
        case "too much noise":
            return "absurd", message(DESCRIPTION, number, changed(good, 1, k, 1e8))
        case "other rows":
            return "absurd", message(DESCRIPTION, number, changed(good, 2, k, ROWS + 1 + seed % 100))
        case "too long":
            return "absurd", message(DESCRIPTION, number, changed(good, 0, (k, seed % 10), 1000 + seed))
        case "far too long":
            return "absurd", message(DESCRIPTION, number, changed(good, 0, (k, seed % 10), -3e38))
        case "later answers too":
            return "malformed", message(DESCRIPTION, number, answers(DESCRIPTION, own, number + 1))
        case "earlier answers changed":
            return "malformed", message(DESCRIPTION, number, changed(good, seed % 3, (number - 2), 5.0))
        case "nothing new":
            return "absurd", message(DESCRIPTION, number, answers(DESCRIPTION, own, number - 1))
        case "wrong shape":
            return "malformed", message(DESCRIPTION, number, {**good, "1": np.ones(seed % 6, np.float32)})
        case "wrong type":
            return "malformed", message(DESCRIPTION, number, {**good, "1": np.ones(6)})
        case "one array more":
            return "malformed", message(DESCRIPTION, number, {**good, "3": np.ones(3, np.float32)})
        case "nothing in it":
            return "malformed", message(DESCRIPTION, number, {})
        case "other schema":
            return "other schema", message(DESCRIPTION, number, good, schema="0" * 64)
        case "other federation":
            return "other federation", message(DESCRIPTION, number, good, federation="0" * 64)
        case "no rows":
            return "absurd", message(DESCRIPTION, number, good, declared=declared(rows=0))
        case "all rows of the world":
            return "absurd", message(DESCRIPTION, number, good, declared=declared(rows=10**10))
        case "next to no budget":
            return "absurd", message(DESCRIPTION, number, good, declared=declared(epsilon_max=0.09))
        case "100 MB":
            return "malformed", HUGE
        case "garbage":
            return "malformed", np.random.default_rng(seed).bytes(seed % 300)
        case "truncated":
            return "malformed", last[: seed % max(len(last), 1)]
        case "poll with other number":
            return "out of sequence", poll(DESCRIPTION, number + seed % 3)
        case "poll with arrays":
            return "malformed", message(DESCRIPTION, number - 1, good, wire.POLL)
    raise AssertionError(what)


def declared(**changes: Any) -> wire.Declared:
    values = {"rows": ROWS, "epsilon": 0.5, "epsilon_max": 1.0, "delta": 1e-3, "events": ()}
    return wire.Declared(**{**values, **changes})


HOSTILE = [
    "other bytes",
    "gap",
    "step back",
    "non-finite",
    "infinite",
    "negative noise",
    "negative rows",
    "no noise",
    "too much noise",
    "other rows",
    "too long",
    "far too long",
    "later answers too",
    "earlier answers changed",
    "nothing new",
    "wrong shape",
    "wrong type",
    "one array more",
    "nothing in it",
    "other schema",
    "other federation",
    "no rows",
    "all rows of the world",
    "next to no budget",
    "100 MB",
    "garbage",
    "truncated",
    "poll with other number",
    "poll with arrays",
]


steps = st.tuples(
    st.sampled_from(NAMES),
    st.sampled_from(["next", "next", "next", "next", "repeat", "poll", "reopen", "unknown site", *HOSTILE]),
    st.integers(0, 10**6),
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(steps, min_size=1, max_size=20))
def test_questions_and_posterior_follow_from_the_stored_answers_whatever_is_sent(
    tmp_path_factory: pytest.TempPathFactory, sent: list[tuple[str, str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("coordinator")
    path = folder / "coordinator.db"
    coordinator = open_coordinator(folder, DESCRIPTION)
    number, last = dict.fromkeys(NAMES, 0), dict.fromkeys(NAMES, b"")
    refused, heard = dict.fromkeys((*NAMES, "stranger"), 0), set()
    questions: list[dict[str, np.ndarray]] = []
    asked = 1
    for name, what, seed in sent:
        before = content(path)
        if what in ("next", "gap", "later answers too") and number[name] + (what != "next") >= asked:
            what = "poll"  # its next question was not asked yet
        if what in ("earlier answers changed", "other bytes") and number[name] == 0:
            what = "poll"
        if what in HOSTILE and what not in ("100 MB", "garbage", "truncated") and number[name] >= asked:
            what = "poll"  # refused anyway
        match what:
            case "next":
                number[name] += 1
                last[name] = release(DESCRIPTION, number[name], SEEDS[name])
                got = answer(coordinator.handle(name, last[name]))
            case "repeat" if number[name]:
                got = answer(coordinator.handle(name, last[name]))
            case "poll" | "repeat":
                got = ask(coordinator, name, number[name])
            case "reopen":
                coordinator.close()
                coordinator = open_coordinator(folder, DESCRIPTION)
                got = ask(coordinator, name, number[name])
            case _:
                if what == "unknown site":
                    name, error, data = "stranger", "unknown site", release(DESCRIPTION, 1)
                else:
                    error, data = hostile(what, number[name] + 1, seed, last[name], SEEDS[name])
                got = answer(coordinator.handle(name, data))
                refused[name] += 1
                assert (got.kind, got.code, dict(got.arrays)) == (wire.REFUSED, error, {}), what
                assert error in wire.REFUSALS
                assert content(path) == before
                assert coordinator.refusals(1)[0].site == name
                assert coordinator.refusals(1)[0].code == error
                assert got.reason
                continue
        heard.add(name)
        if asked < QUESTIONS and max(number.values()) >= asked and asked - 1 not in {number[each] for each in heard}:
            asked += 1
        waits = number[name] >= asked
        assert (got.kind, got.applied, got.version) == (
            wire.WAIT if waits else wire.QUESTION,
            number[name],
            sum(number.values()),
        )
        assert bool(got.arrays) != waits
        if not waits:
            for question in questions[number[name] : number[name] + 1]:
                assert all(np.array_equal(question[key], got.arrays[key]) for key in question)  # the same for all
            if len(questions) == number[name]:
                questions.append(dict(got.arrays))
    assert coordinator.verify() < 1e-6
    assert coordinator.version == sum(number.values())
    assert {row.name: row.sequence for row in coordinator.sites()} == number
    assert {row.name: row.refused for row in coordinator.sites()} == {n: refused[n] for n in NAMES}
    assert len(coordinator.refusals(10**6)) == sum(refused.values())
    coordinator.close()


@pytest.mark.parametrize("what", HOSTILE)
def test_each_hostile_message_is_refused_and_the_next_good_one_accepted(
    what: str, coordinator: Coordinator, tmp_path: Path
) -> None:
    assert send(coordinator, "north", 1).kind == wire.QUESTION
    before = content(tmp_path / "coordinator.db")
    error, data = hostile(what, 2, 5, release(DESCRIPTION, 1, 0))
    began = time.perf_counter()
    got = answer(coordinator.handle("north", data))
    assert time.perf_counter() - began < 5
    assert (got.kind, got.code, got.applied, got.version) == (wire.REFUSED, error, 1, 1)
    assert content(tmp_path / "coordinator.db") == before
    assert send(coordinator, "north", 2).applied == 2


def test_an_answer_is_as_long_as_all_declared_rows_and_much_noise_could_make_it(coordinator: Coordinator) -> None:
    """Rows add vectors of length one at most; a table has up to a tenth more rows than were declared."""
    noise = float(answers(DESCRIPTION, 0, 1)["1"][0])
    most = 1.1 * ROWS + noise**0.5 * (10**0.5 + 10)
    for length, error in ((1.001 * most, "absurd"), (0.999 * most, "")):
        arrays = answers(DESCRIPTION, 0, 1)
        arrays["0"][0] *= length / np.linalg.norm(arrays["0"][0])
        got = answer(coordinator.handle("north", message(DESCRIPTION, 1, arrays)))
        assert (got.code, coordinator.version) == (error, 0 if error else 1)


def test_a_site_is_told_that_it_declares_what_cannot_be_before_it_pays(coordinator: Coordinator) -> None:
    for wrong in (declared(rows=10**7), declared(rows=0), declared(epsilon_max=1e-3)):
        got = answer(coordinator.handle("north", message(DESCRIPTION, 0, {}, wire.POLL, declared=wrong)))
        assert (got.code, got.applied) == ("absurd", 0)
    assert ask(coordinator, "north", 0).kind == wire.QUESTION


def test_answers_that_nobody_can_read_are_kept_until_they_can_be_read(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried = 0
    with monkeypatch.context() as patched:
        errors: tuple[Exception, ...] = (np.linalg.LinAlgError("singular"), FloatingPointError(), ValueError("NaN"))
        for name, error in zip(NAMES, errors, strict=True):

            def fails(*_: Any, error: Exception = error, **__: Any) -> None:
                nonlocal tried
                tried += 1
                raise error

            patched.setattr(Coordinator, "read", fails)
            for _ in range(3):  # what failed is not tried again before something has changed
                got = send(coordinator, name, 1)
                assert (got.kind, got.applied, got.code) == (wire.WAIT, 1, "")
        assert (tried, coordinator.version, coordinator.readings()) == (3, 3, [])
        assert "NaN" in coordinator.problem
        assert (np.asarray(coordinator.posterior.mean) == np.asarray(DESCRIPTION.spec.prior.mean)).all()
        coordinator.end("enough")
        assert ask(coordinator, "north", 1).stop == "enough"  # who asks is not to blame
        assert tried == 4
    coordinator.close()
    with Coordinator.open(tmp_path / "coordinator.db") as again:
        ask(again, "north", 1, wire.FINISHED)
        assert [each.version for each in again.readings()] == [3]
        assert again.problem == ""
        assert again.verify() < 1e-6


@pytest.mark.parametrize("seed", range(12))
def test_answers_that_no_honest_rows_give_are_read_or_refused_and_break_nothing(seed: int, tmp_path: Path) -> None:
    """Of any direction, as long as they may be, with next to no noise or as much as there may be, of many rows."""
    rng = np.random.default_rng(seed)
    rows = int(rng.choice([1, ROWS, 6000]))
    with open_coordinator(tmp_path, DESCRIPTION) as coordinator:
        ask(coordinator, "south", 0)
        sent = {key: np.zeros_like(array) for key, array in answers(DESCRIPTION, 0, 1).items()}
        for number in range(1, QUESTIONS + 1):
            direction = rng.normal(size=10) * rng.choice([0, 1, 1e3], size=10)
            deviation = float(rng.choice([1e-18, 1e-3, 10, 200]))
            longest = (rows + deviation * 10) * rng.choice([0, 1e-9, 1])
            sent["0"][number - 1] = longest * direction / max(float(np.linalg.norm(direction)), 1e-30)
            sent["1"][number - 1], sent["2"][number - 1] = deviation**2, rows
            data = message(DESCRIPTION, number, sent, declared=declared(rows=rows))
            got = answer(coordinator.handle("north", data))
            assert got.code in ("", "absurd"), got.reason
            if got.code:
                assert send(coordinator, "south", number).code in ("", "absurd")
                break
            assert send(coordinator, "south", number).code in ("", "absurd")
        assert coordinator.verify() < 1e-6
        assert np.isfinite(np.asarray(coordinator.posterior.mean)).all()
        assert (np.asarray(coordinator.posterior.std) > 0).all()


def test_the_same_bytes_twice_are_applied_once_and_answered_with_the_next_question(coordinator: Coordinator) -> None:
    ask(coordinator, "south", 0)  # present: question 2 waits for it
    north = release(DESCRIPTION, 1)
    assert answer(coordinator.handle("north", north)).kind == wire.WAIT
    after = send(coordinator, "south", 1)
    for times in range(1, 4):
        again = answer(coordinator.handle("north", north))
        assert (again.kind, again.applied, again.version) == (wire.QUESTION, 1, 2)
        assert all(np.array_equal(again.arrays[key], after.arrays[key]) for key in after.arrays)
        assert coordinator.sites()[0].repeated == times
    assert coordinator.sites()[0].sequence == 1


def test_identity_comes_from_the_caller_and_not_from_the_message(coordinator: Coordinator) -> None:
    """The same bytes from two sites are answers of both."""
    data = release(DESCRIPTION, 1)
    assert answer(coordinator.handle("north", data)).version == 1
    assert answer(coordinator.handle("south", data)).version == 2
    stored, one = coordinator.factors(), answers(DESCRIPTION, 0, 1)
    assert all(np.array_equal(np.asarray(stored.sums)[place], one["0"]) for place in (0, 1))


def test_no_answer_is_taken_before_its_question_was_asked(coordinator: Coordinator) -> None:
    ask(coordinator, "south", 0)
    send(coordinator, "north", 1)
    got = send(coordinator, "north", 2)
    assert (got.code, got.applied) == ("out of sequence", 1)
    assert "before question 2 was asked" in got.reason
    send(coordinator, "south", 1)
    assert send(coordinator, "north", 2).applied == 2


def told_to_all(coordinator: Coordinator) -> None:
    """Let three sites answer all questions in turns."""
    for name in NAMES:
        ask(coordinator, name, 0)
    for number in range(1, QUESTIONS + 1):
        for name in NAMES:
            assert send(coordinator, name, number).applied == number


def test_the_file_gives_the_posterior_that_a_coordinator_in_memory_has(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    spec = DESCRIPTION.spec
    memory = Server.start(
        spec.prior, NAMES, schema=DESCRIPTION.schema.digest, algorithm=spec.algorithm, model=spec.model
    )
    told_to_all(coordinator)
    for number in range(1, QUESTIONS + 1):
        for name in NAMES:
            tree = wire.tree_of(spec.algorithm.first_factor(spec.prior), answers(DESCRIPTION, SEEDS[name], number))
            memory = memory.receive(name, Release(tree, jnp.int32(number), schema=DESCRIPTION.schema.digest))
    coordinator.close()
    with Coordinator.open(tmp_path / "coordinator.db") as rebuilt:
        for part in ("mean", "std"):
            one, other = (np.asarray(getattr(each.posterior, part)) for each in (rebuilt, memory))
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
        assert rebuilt.verify() < 1e-6
        assert rebuilt.version == 18
        assert [each.asked for each in rebuilt.readings()] == [2, 3, 4, 5, 6, 6]
        stored = np.asarray(rebuilt.factors().sums)
        assert (stored == np.asarray(memory.state.factors.sums)).all()  # type: ignore[attr-defined]


def test_a_late_site_answers_the_old_questions_and_q_is_what_all_answers_say(coordinator: Coordinator) -> None:
    """The oracle: one reading of the sum of all answers to the questions as they were asked."""
    for number in range(1, 5):
        for name in ("north", "south"):
            send(coordinator, name, number)
    asked = [take(coordinator.asked.questions, k) for k in range(int(coordinator.asked.count))]
    assert len(asked) == 5
    kinds = [send(coordinator, "east", number).kind for number in range(1, 4)]
    assert kinds == [wire.QUESTION] * 3
    for number in (5, 6):
        for name in ("north", "south"):
            send(coordinator, name, number)
    assert int(coordinator.asked.count) == 6  # east was not in step
    for number in (4, 5, 6):
        send(coordinator, "east", number)
    assert coordinator.site("east").sequence == 6
    spec = DESCRIPTION.spec
    parts: Any = [sum(answers(DESCRIPTION, seed, 6)[part].astype(float) for seed in range(3)) for part in "012"]
    total = Messages(*parts)
    questions = [take(coordinator.asked.questions, k) for k in range(6)]
    truth = read(DESCRIPTION.plan, spec.model, spec.prior, questions, total)  # type: ignore[arg-type]
    for part in ("mean", "std"):
        np.testing.assert_allclose(getattr(coordinator.posterior, part), getattr(truth.posterior, part), 1e-4, 1e-6)
    for old, new in zip(asked, questions, strict=False):
        assert np.array_equal(old.whitening, new.whitening)  # questions stay
    assert coordinator.verify() < 1e-6
    assert coordinator.readings()[-1].version == 18


def test_a_site_that_is_in_step_is_waited_for_until_patience_ends(tmp_path: Path) -> None:
    hasty = dataclasses.replace(DESCRIPTION, start=Start(patience=20.0))
    now = 1e9
    with open_coordinator(tmp_path, hasty) as coordinator:
        coordinator.clock = lambda: now
        ask(coordinator, "south", 0)
        assert send(coordinator, "north", 1).kind == wire.WAIT
        now += 19
        assert ask(coordinator, "north", 1).kind == wire.WAIT
        now += 2
        assert ask(coordinator, "north", 1).kind == wire.QUESTION
        assert ask(coordinator, "south", 0).kind == wire.QUESTION  # it goes on with question 1
        now += 5
        assert send(coordinator, "north", 2).kind == wire.QUESTION
        assert send(coordinator, "south", 1).kind == wire.QUESTION
        assert send(coordinator, "south", 2).kind == wire.QUESTION  # in step again
        assert send(coordinator, "north", 3).kind == wire.WAIT
        assert ask(coordinator, "south", 2, wire.PAUSED).kind == wire.QUESTION
        assert ask(coordinator, "north", 3).kind == wire.QUESTION
        assert coordinator.verify() < 1e-6


def test_after_the_last_question_late_answers_are_read_now_and_then_and_when_all_are_there(tmp_path: Path) -> None:
    now = 1e9
    with open_coordinator(tmp_path, description(("north", "south"), 5)) as coordinator:
        coordinator.clock = lambda: now
        for number in range(1, 6):
            send(coordinator, "north", number)
        ask(coordinator, "south", 0)
        readings = len(coordinator.readings())
        for number, seconds, more in ((1, 1, 0), (2, 1, 0), (3, 10, 1), (4, 1, 1), (5, 1, 2)):
            now += seconds
            send(coordinator, "south", number)
            assert len(coordinator.readings()) == readings + more
        assert coordinator.readings()[-1].version == 10
        assert coordinator.verify() < 1e-6


def test_a_coordinator_that_was_away_for_long_waits_for_sites_to_come_back(tmp_path: Path) -> None:
    hasty = dataclasses.replace(DESCRIPTION, start=Start(patience=20.0))
    with open_coordinator(tmp_path, hasty) as coordinator:
        coordinator.clock = lambda: 1e9
        ask(coordinator, "south", 0)
        send(coordinator, "north", 1)
    with open_coordinator(tmp_path, hasty) as coordinator:
        coordinator.clock = lambda: 1e9 + 3600
        assert ask(coordinator, "north", 1).kind == wire.WAIT
        coordinator.clock = lambda: 1e9 + 3621
        assert ask(coordinator, "north", 1).kind == wire.QUESTION


@pytest.mark.parametrize("wait_for", [2, ("north", "south")])
def test_nobody_is_asked_before_those_who_were_waited_for_are_there(
    wait_for: int | tuple[str, ...], tmp_path: Path
) -> None:
    with open_coordinator(tmp_path, dataclasses.replace(DESCRIPTION, start=Start(wait_for))) as coordinator:
        for _ in range(3):
            assert ask(coordinator, "north", 0).kind == wire.WAIT
        assert ask(coordinator, "south", 0, wire.PAUSED).kind == wire.WAIT
        assert ask(coordinator, "north", 0).kind == wire.WAIT
        assert ask(coordinator, "south", 0).kind == wire.QUESTION
        assert ask(coordinator, "north", 0).kind == wire.QUESTION
        assert send(coordinator, "north", 1).kind == wire.WAIT  # until south has answered too
        assert ask(coordinator, "south", 0, wire.LEFT).kind == wire.QUESTION
        assert ask(coordinator, "north", 1).kind == wire.QUESTION  # it has begun: nobody needs to be there


def test_a_coordinator_may_begin_without_those_who_do_not_come(tmp_path: Path) -> None:
    with open_coordinator(tmp_path, dataclasses.replace(DESCRIPTION, start=Start(3))) as coordinator:
        waiting = "No question is asked before these are at work: 3 sites."
        assert ask(coordinator, "north", 0).kind == wire.WAIT
        assert waiting in status_of(coordinator).health
        coordinator.begin()
        assert waiting not in status_of(coordinator).health
        assert ask(coordinator, "north", 0).kind == wire.QUESTION
        assert send(coordinator, "north", 1).kind == wire.QUESTION


def test_verification_notices_what_does_not_follow_from_the_answers(coordinator: Coordinator, tmp_path: Path) -> None:
    told_to_all(coordinator)
    assert coordinator.verify() < 1e-6
    asked: Any = coordinator.asked
    stored = wire.pack(coordinator.asked)

    def replaced(table: str, column: str, value: Any, where: str = "") -> None:
        with sqlite3.connect(tmp_path / "coordinator.db") as connection:
            connection.execute(f"UPDATE {table} SET {column} = ? {where}", (value,))
        connection.close()

    q = dataclasses.replace(asked.posterior, natural_mean=asked.posterior.natural_mean + 1)
    replaced("federation", "asked", wire.pack(dataclasses.replace(asked, posterior=q)))
    assert coordinator.verify() > 1e-3
    other = dataclasses.replace(asked.questions, reach=asked.questions.reach * np.float32(1.01))
    replaced("federation", "asked", wire.pack(dataclasses.replace(asked, questions=other)))
    with pytest.raises(InputError, match="question 2 is not that which follows"):
        coordinator.verify()
    replaced("federation", "asked", wire.pack(dataclasses.replace(asked, count=np.int32(5))))
    with pytest.raises(InputError, match="5 questions are there, and 6 were asked"):
        coordinator.verify()
    replaced("federation", "asked", stored)
    good = wire.pack(take(coordinator.factors(), 0))
    template = DESCRIPTION.spec.algorithm.first_factor(DESCRIPTION.spec.prior)
    replaced("sites", "factor", wire.pack(wire.tree_of(template, answers(DESCRIPTION, 7, 6))), "WHERE name = 'north'")
    with pytest.raises(InputError, match="question 2 is not that which follows"):
        coordinator.verify()
    replaced("sites", "factor", wire.pack(wire.tree_of(template, answers(DESCRIPTION, 0, 5))), "WHERE name = 'north'")
    with pytest.raises(InputError, match="updates of 'north' are missing"):
        coordinator.verify()
    replaced("sites", "factor", good, "WHERE name = 'north'")
    assert coordinator.verify() < 1e-6
    with sqlite3.connect(tmp_path / "coordinator.db") as connection:
        connection.execute("DELETE FROM applied WHERE version = 18")
    connection.close()
    with pytest.raises(InputError, match="updates of 'east' are missing"):
        coordinator.verify()


def test_only_so_many_refusals_are_kept_and_all_are_counted(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedvi.federation.coordinator.REFUSALS", 5)
    for number in range(12):
        coordinator.handle("north", b"garbage %d" % number)
    assert len(coordinator.refusals(100)) == 5 < REFUSALS
    assert coordinator.sites()[0].refused == 12


def test_a_site_that_is_added_later_has_answered_nothing(coordinator: Coordinator) -> None:
    send(coordinator, "north", 1)
    assert answer(coordinator.handle("west", release(DESCRIPTION, 1))).code == "unknown site"
    coordinator.add_site("west")
    assert coordinator.names == (*NAMES, "west")
    assert send(coordinator, "west", 1).applied == 1
    assert coordinator.verify() < 1e-6
    with pytest.raises(InputError, match="takes part already"):
        coordinator.add_site("west")
    for wrong in ("", "coordinator", "North", "a b", "../west", "north.1", "north.100"):
        with pytest.raises(InputError, match="a site's name"):
            coordinator.add_site(wrong)


def test_a_site_that_leaves_keeps_its_answers_and_may_come_back(coordinator: Coordinator) -> None:
    ask(coordinator, "south", 0)
    send(coordinator, "north", 1)
    ask(coordinator, "north", 1, wire.LEFT)
    assert coordinator.site("north").state == wire.LEFT
    send(coordinator, "south", 1)
    assert float(coordinator.factors().rows.sum()) == 2 * ROWS
    ask(coordinator, "north", 1, wire.PAUSED)
    assert coordinator.sites()[0].state == wire.PAUSED
    assert send(coordinator, "north", 2).applied == 2


def test_a_site_answers_as_many_questions_as_were_agreed(tmp_path: Path) -> None:
    with open_coordinator(tmp_path, description(updates=2)) as coordinator:
        assert [send(coordinator, "north", number).kind for number in (1, 2)] == [wire.QUESTION, wire.WAIT]
        arrays = answers(coordinator.description, 0, 2)
        more = answer(coordinator.handle("north", message(coordinator.description, 3, arrays)))
        assert (more.code, more.applied, coordinator.version) == ("out of sequence", 2, 2)
        assert send(coordinator, "north", 2).kind == wire.WAIT  # once more the same is no answer more
        assert coordinator.verify() < 1e-6


@pytest.mark.parametrize("last", [wire.SPENT, wire.FINISHED, wire.LEFT])
def test_it_ends_when_every_site_has_spent_its_budget_or_left_and_not_before(
    last: str, coordinator: Coordinator
) -> None:
    ask(coordinator, "north", 0, wire.SPENT)
    ask(coordinator, "south", 0, wire.LEFT)
    assert coordinator.stop == ""  # east was never heard of
    ask(coordinator, "east", 0, wire.PAUSED)
    assert coordinator.stop == ""
    stop = ask(coordinator, "east", 0, last).stop
    assert stop == "every site has answered all questions, spent its budget or left"
    assert ask(coordinator, "north", 0, wire.WORKING).kind == wire.WAIT  # an end is an end
    assert not coordinator.over  # north may not know it yet
    ask(coordinator, "north", 0, wire.FINISHED)
    assert coordinator.over == (last != wire.SPENT)


def test_it_ends_so_many_hours_after_the_first_release_and_reads_what_is_there(tmp_path: Path) -> None:
    timed = dataclasses.replace(DESCRIPTION, stop=StoppingRule(hours=2.0))
    with open_coordinator(tmp_path, timed) as coordinator:
        now = 1e9
        coordinator.clock = lambda: now
        ask(coordinator, "south", 0)
        now += 1e6  # nothing counts before the first release
        send(coordinator, "north", 1)
        for number in (2, 3, 4):
            send(coordinator, "north", number)
        ask(coordinator, "south", 0)
        send(coordinator, "south", 1)
        now += 7199
        assert ask(coordinator, "south", 1).stop == ""
        now += 2
        assert ask(coordinator, "south", 1).stop == "2 hours have passed"
        assert ask(coordinator, "north", 4).kind == wire.WAIT
        asked, read_of = int(coordinator.asked.count), coordinator.readings()[-1].version
        assert read_of == coordinator.version == 5
        assert send(coordinator, "south", 2).applied == 2  # what was on its way counts
        assert (int(coordinator.asked.count), coordinator.readings()[-1].version) == (asked, 6)
        assert coordinator.verify() < 1e-6


def test_an_end_by_the_coordinator_asks_nothing_more_and_reads_all_answers(coordinator: Coordinator) -> None:
    for name in ("north", "south"):
        ask(coordinator, name, 0)
    for number in (1, 2):
        for name in ("north", "south"):
            send(coordinator, name, number)
    send(coordinator, "north", 3)
    coordinator.end("enough")
    assert ask(coordinator, "south", 2, wire.FINISHED).stop == "enough"
    assert (int(coordinator.asked.count), coordinator.readings()[-1].version) == (3, 5)
    ask(coordinator, "north", 3, wire.FINISHED)
    assert coordinator.over
    assert coordinator.verify() < 1e-6


def test_without_a_rule_time_does_not_end_it(coordinator: Coordinator) -> None:
    now = 1e9
    coordinator.clock = lambda: now
    for number in range(1, QUESTIONS + 1):
        now += 1e6
        assert send(coordinator, "north", number).stop == ""


def fill_up(coordinator: Coordinator) -> None:
    """Write until no page is free."""
    while True:
        coordinator._database.insert("refusals", (None, 0.0, "north", "absurd", "x" * 1000))


def test_a_full_disk_is_an_answer_that_is_no_refusal_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.db"
    with open_coordinator(tmp_path, description(("north",), updates=60)) as coordinator:
        send(coordinator, "north", 1)
        (pages,) = coordinator._database.execute("PRAGMA page_count")[0]
        coordinator._database.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(FileFailed, match="full"):
            fill_up(coordinator)
        for number in range(2, 61):  # until the last page of answers is full
            before = content(path)
            if (got := send(coordinator, "north", number)).kind == wire.REFUSED:
                break
        assert "full" in got.reason
        assert got.code == wire.UNAVAILABLE not in wire.REFUSALS  # the site sends the same bytes again
        assert content(path) == before
        assert send(coordinator, "north", number).kind == wire.REFUSED
        coordinator.handle("north", b"garbage")  # its refusal cannot be written down either
        coordinator._database.execute("PRAGMA max_page_count = 1000000")
        assert send(coordinator, "north", number).applied == number
        assert coordinator.verify() < 1e-6


def test_a_disk_that_is_full_when_a_transaction_ends_is_an_answer_that_changes_nothing(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    path, first = tmp_path / "coordinator.db", release(DESCRIPTION, 1)
    coordinator.handle("north", first)
    before, log = content(path), (tmp_path / "coordinator.db-wal").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log + 5000, hard))  # in the middle of what a release writes
    try:
        answers = [answer(coordinator.handle("north", release(DESCRIPTION, 2))) for _ in range(3)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [got.kind for got in answers] == [wire.REFUSED] * 3
    assert {got.code for got in answers} == {wire.UNAVAILABLE}
    assert content(path) == before
    assert answer(coordinator.handle("north", release(DESCRIPTION, 2))).applied == 2
    assert coordinator.verify() < 1e-6


def test_a_file_of_which_another_process_holds_the_lock_is_an_answer_too(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    coordinator._database.execute("PRAGMA busy_timeout = 50")
    other = sqlite3.connect(tmp_path / "coordinator.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    got = answer(coordinator.handle("north", release(DESCRIPTION, 1)))
    assert (got.kind, got.code) == (wire.REFUSED, wire.UNAVAILABLE)
    other.execute("ROLLBACK")
    other.close()
    assert answer(coordinator.handle("north", release(DESCRIPTION, 1))).applied == 1


def test_threads_that_handle_messages_of_different_sites_lose_nothing(coordinator: Coordinator) -> None:
    for name in NAMES:
        ask(coordinator, name, 0)

    def work(name: str) -> None:
        for number in range(1, QUESTIONS + 1):
            while ask(coordinator, name, number - 1).kind == wire.WAIT:
                time.sleep(0.01)
            send(coordinator, name, number)

    threads = [threading.Thread(target=work, args=(name,)) for name in NAMES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert coordinator.version == 18
    assert coordinator.refusals() == []
    assert coordinator.verify() < 1e-6
    assert [each.version for each in coordinator.readings()] == [3, 6, 9, 12, 15, 18]
    for place, name in enumerate(NAMES):
        assert np.array_equal(np.asarray(coordinator.factors().sums)[place], answers(DESCRIPTION, SEEDS[name], 6)["0"])


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


@pytest.mark.parametrize("number", [0, 2, 5])
def test_a_coordinators_file_of_another_format_is_refused(
    coordinator: Coordinator, tmp_path: Path, number: int
) -> None:
    coordinator._database.execute(f"PRAGMA user_version = {number}")
    with pytest.raises(InputError, match=f"a coordinator in format 4, got format {number}: .* Use that version"):
        Coordinator.open(tmp_path / "coordinator.db")


def test_a_coordinator_is_not_made_over_the_log_of_one_that_is_gone(tmp_path: Path) -> None:
    """SQLite would play the old log into the new file."""
    coordinator = open_coordinator(tmp_path, DESCRIPTION)
    coordinator.handle("north", release(DESCRIPTION, 1))
    copy = (tmp_path / "coordinator.db-wal").read_bytes()
    coordinator.close()
    (tmp_path / "coordinator.db").unlink()
    (tmp_path / "coordinator.db-wal").write_bytes(copy)
    with pytest.raises(InputError, match="left over"):
        open_coordinator(tmp_path, DESCRIPTION)

"""Whose turn it is: nobody burns a budget alone, nobody waits for ever, late sites catch up."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from fedvi.errors import InputError
from fedvi.federation.store.records import ABSENT
from fedvi.federation.store.turns import Start, Turn
from fedvi.federation.wire import FINISHED, LEFT, PAUSED, SPENT, WORKING

NOW = 1000.0
NAMES = ("a", "b", "c", "d")


def sites(*found: tuple[str, int] | tuple[str, int, float]) -> list[Turn]:
    """Return sites by state, number of answers, and seconds since they were heard of."""
    made = []
    for name, (state, answered, *ago) in zip(NAMES, found, strict=False):
        made.append(Turn(name, state, answered, None if state == ABSENT else NOW - sum(ago)))
    return made


WORKS = (WORKING, 0)


@pytest.mark.parametrize(
    ("wait_for", "there", "begins"),
    [
        (1, [WORKS, (ABSENT, 0)], True),
        (1, [(PAUSED, 0), (ABSENT, 0)], False),
        (2, [WORKS, (ABSENT, 0)], False),
        (2, [WORKS, (PAUSED, 0)], False),
        (2, [WORKS, (WORKING, 0, 299.0)], True),
        (2, [WORKS, (WORKING, 0, 301.0)], False),
        (2, [WORKS, (LEFT, 0)], True),  # who has left is not waited for
        (2, [WORKS, (SPENT, 0), (ABSENT, 0)], False),
        (3, [WORKS, WORKS, WORKS, (ABSENT, 0)], True),
        (("b",), [WORKS, (ABSENT, 0)], False),
        (("b",), [(ABSENT, 0), WORKS], True),
        (("a", "b"), [WORKS, (LEFT, 0), (ABSENT, 0)], True),
        (("a", "b"), [WORKS, (FINISHED, 0), (ABSENT, 0)], True),
        (("a", "b"), [WORKS, (PAUSED, 0), WORKS], False),
    ],
)
def test_the_first_question_waits_for_as_many_as_was_said(
    wait_for: int | tuple[str, ...], there: list[tuple[str, int]], begins: bool
) -> None:
    assert Start(wait_for).begins(sites(*there), NOW) == begins


@pytest.mark.parametrize(
    ("there", "closes"),
    [
        ([(WORKING, 3), (WORKING, 3)], True),
        ([(WORKING, 3), (WORKING, 2)], False),  # in step
        ([(WORKING, 3), (WORKING, 2, 299.0)], False),
        ([(WORKING, 3), (WORKING, 2, 301.0)], True),  # silent for too long
        ([(WORKING, 3, 301.0), (WORKING, 2)], False),
        ([(WORKING, 3), (PAUSED, 2)], True),
        ([(WORKING, 3), (SPENT, 2)], True),
        ([(WORKING, 3), (LEFT, 2)], True),
        ([(WORKING, 3), (ABSENT, 0)], True),
        ([(WORKING, 3), (WORKING, 1)], True),  # catching up
        ([(WORKING, 3), (WORKING, 0)], True),
        ([(WORKING, 3), (WORKING, 1), (WORKING, 2)], False),
        ([(WORKING, 2), (WORKING, 2)], False),  # nobody has answered yet
        ([(PAUSED, 2), (LEFT, 2)], False),
        ([(LEFT, 3), (WORKING, 0)], True),
        ([(LEFT, 3), (WORKING, 2)], False),
    ],
)
def test_the_next_question_waits_for_those_in_step(there: list[tuple[str, int]], closes: bool) -> None:
    assert Start().closes(sites(*there), 3, NOW) == closes


def test_wait_for_names_or_counts_sites_that_there_are() -> None:
    with pytest.raises(InputError, match="'west'"):
        Start(("a", "west")).check(NAMES)
    for wrong in (0, 5):
        with pytest.raises(InputError, match="wait_for"):
            Start(wrong).check(NAMES)
    with pytest.raises(InputError, match="patience"):
        Start(patience=5.0)


@pytest.mark.parametrize("seed", range(60))
def test_it_never_stands_still_whoever_comes_goes_sleeps_or_is_killed(seed: int) -> None:
    """Sites do what they like for a while; then those who are alive go on, and all of them answer everything."""
    rng, questions = random.Random(seed), 6
    start = Start(rng.choice((1, 2, ("a", "b"))), patience=30.0)
    now, asked, turns = 0.0, 1, {name: Turn(name, ABSENT, 0, None) for name in NAMES}
    gone: set[str] = set()
    first: dict[int, set[str]] = {}  # who had answered a question when the next one was asked

    def speak(name: str, state: str) -> None:
        """Let a site ask or answer, as a coordinator takes it."""
        nonlocal asked
        turn = turns[name] = replace(turns[name], state=state, heard=now)
        everybody = list(turns.values())
        begun = any(each.answered for each in everybody) or start.begins(everybody, now)
        if state == WORKING and begun and turn.answered < asked:
            turns[name] = replace(turn, answered=turn.answered + 1)
        everybody = list(turns.values())
        if asked < questions and start.closes(everybody, asked, now):
            first[asked] = {each.name for each in everybody if each.answered >= asked}
            asked += 1

    for _ in range(rng.randrange(80)):
        name = rng.choice(NAMES)
        now += rng.choice((0.1, 1.0, 40.0) if rng.random() < 0.2 else (0.1, 1.0))
        match rng.random():
            case chance if chance < 0.1:
                gone ^= {name}  # killed, or back
            case chance if chance < 0.2 and name not in gone:
                speak(name, rng.choice((PAUSED, LEFT)))
            case _ if name not in gone:
                speak(name, WORKING)
    alive = sorted(set(NAMES) - gone) if isinstance(start.wait_for, int) else list(NAMES)
    alive = alive if len(alive) >= 2 else list(NAMES)  # so many must come
    for _ in range(200):
        for name in alive:
            now += 0.5
            speak(name, WORKING)
    assert {turns[name].answered for name in alive} == {questions}
    assert all(first.values())


def test_sites_that_are_always_there_answer_every_question_together() -> None:
    rng, answered, asked = random.Random(0), dict.fromkeys(NAMES, 0), 1
    for _ in range(500):
        name = rng.choice(NAMES)
        answered[name] = min(answered[name] + 1, asked)
        if Start().closes([Turn(each, WORKING, count, NOW) for each, count in answered.items()], asked, NOW):
            assert min(answered.values()) == asked
            asked += 1
    assert asked > 20

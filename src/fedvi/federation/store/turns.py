"""Whose turn it is: which sites a question waits for.

The next question is made out of the answers to those before. It is asked when all are there that can be expected:

    present      at work, and heard from within `patience` seconds
    in step      has answered all questions but the last one that was asked

    question 1   is given out when as many sites are present as `wait_for` says; nobody spends a budget alone
    the next     is asked when somebody has answered the last one, and no present site in step has still to do so
    the end      after the last question, q is read again when the same holds and there are new answers; while late
                 sites still answer older questions, every ten seconds

A late site answers the old questions as fast as it can. Nobody waits for it until it is in step; its answers count from
the next reading on.

No site holds up others for ever. One that is paused, has left or spent its budget is not present; one that was killed,
or stopped without a word, is not after `patience`. Whoever waits asks again every few seconds, and every message is a
reason to look at the rule. Whoever comes back goes on with its own next question, which was asked long ago or is the
last one. Only the start may wait for ever: for people who were asked to come, until somebody says `federation begin`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedvi.checks import in_range, whole
from fedvi.errors import InputError
from fedvi.federation.wire import FINISHED, LEFT, SPENT, WORKING

SHORTEST = 10.0
"""Seconds of patience at least: sites that wait ask every few seconds."""


@dataclass(frozen=True)
class Turn:
    """Where a site is: its state, how many questions it has answered, and when it was last heard of."""

    name: str
    state: str
    answered: int
    heard: float | None


@dataclass(frozen=True)
class Start:
    """Who is waited for.

    wait_for: how many sites, or which, must be present before the first question is given out.
    patience: seconds after which a site that says nothing is not waited for.
    """

    wait_for: int | tuple[str, ...] = 1
    patience: float = 300.0

    def __post_init__(self) -> None:
        if isinstance(self.wait_for, int):
            whole("start.wait_for", self.wait_for, 1)
        in_range("start.patience", self.patience, SHORTEST)

    def check(self, sites: Sequence[str]) -> None:
        """Raise unless these sites are enough."""
        if isinstance(self.wait_for, int):
            whole("start.wait_for", self.wait_for, 1, len(sites))
        elif strange := sorted(set(self.wait_for) - set(sites)):
            raise InputError(f"Expected start.wait_for to name sites of the federation, got {strange[0]!r}.")

    def begins(self, sites: Sequence[Turn], now: float) -> bool:
        """Tell whether the first question may be given out."""
        there = {site.name for site in sites if self._present(site, now)}
        expected = {site.name for site in sites if site.state not in (SPENT, FINISHED, LEFT)}
        if isinstance(self.wait_for, int):
            return len(there) >= min(self.wait_for, len(expected))
        return expected.intersection(self.wait_for) <= there

    def closes(self, sites: Sequence[Turn], asked: int, now: float) -> bool:
        """Tell whether all answers to the last question that was asked are there."""
        waiting = any(site.answered == asked - 1 and self._present(site, now) for site in sites)
        return not waiting and any(site.answered >= asked for site in sites)

    def late(self, sites: Sequence[Turn], asked: int, now: float) -> bool:
        """Tell whether a site at work has still to answer what was asked."""
        return any(site.answered < asked and self._present(site, now) for site in sites)

    def _present(self, site: Turn, now: float) -> bool:
        return site.state == WORKING and site.heard is not None and now - site.heard < self.patience


@dataclass(frozen=True)
class StoppingRule:
    """When a federation ends: that every site has answered all questions, spent its budget or left always ends it.

    hours: end so long after the first release; 0: never.
    """

    hours: float = 0.0

    def __post_init__(self) -> None:
        in_range("stop.hours", self.hours, 0)

    def reason(self, states: Sequence[str], seconds: float) -> str:
        """Return why the federation ends now, or an empty text. seconds: since the first release."""
        if all(state in (SPENT, FINISHED, LEFT) for state in states):
            return "every site has answered all questions, spent its budget or left"
        if self.hours > 0 and seconds >= 3600 * self.hours:
            return f"{self.hours:g} hours have passed"
        return ""

"""Reading: from the answers of all sites to q and the next question, beside the path of messages.

What is read depends on the file alone. It is committed only if nothing came meanwhile; otherwise it is made again. So
one thread may read while another takes messages, and a process that is killed loses nothing.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Collection
from dataclasses import replace

import numpy as np

from fedvi.errors import AbsurdRelease, InputError
from fedvi.federation import wire
from fedvi.federation.store.file import THERE, CoordinatorFile, first_of
from fedvi.federation.store.records import Reading
from fedvi.federation.store.turns import Turn
from fedvi.inference.asking import Asked
from fedvi.inference.questions import Question
from fedvi.pytree import leaves, take

AGAIN = 10.0
"""Seconds between readings after the last question, while late sites still answer older ones."""


class Reader(CoordinatorFile):
    """The coordinator's file, and what is due in it: to read, to ask, to end.

    connected: sites that wait for an answer right now, and so are there.
    """

    clock = staticmethod(time.time)
    connected: Collection[str] = ()
    _since = math.inf
    _tried: object = None

    def _turns(self, time_now: float) -> list[Turn]:
        """Return where sites are. A coordinator that was away has patience from its return on."""
        self._since = min(self._since, time_now)

        def heard(turn: Turn) -> float | None:
            if turn.heard is None:
                return None
            return time_now if turn.name in self.connected else max(turn.heard, self._since)

        return [replace(turn, heard=heard(turn)) for turn in self.turns()]

    def look(self) -> bool:
        """End the federation if it is due; tell whether all answers are there that can be expected, and unread."""
        self._stop_if_due(self.clock())
        return self._due(self.asked) is not None

    def _due(self, asked: Asked) -> bool | None:
        """Tell whether reading all answers now would make a question too; None if it is not time to read."""
        time_now, count, new = self.clock(), int(asked.count), self.version != self._seen
        if self.stop:
            return False if new or self._withdrawn_lately else None
        more, start, turns = count < self.most_questions, self.description.start, self._turns(time_now)
        closed = start.closes(turns, count, time_now)
        if self._withdrawn_lately or (closed and more):
            return more and closed
        (last,) = self._database.only("SELECT ifnull(max(time), 0) FROM readings")
        late = start.late(turns, count, time_now) and 0 <= time_now - last < AGAIN
        return False if closed and new and not late else None

    @property
    def mark(self) -> object:
        """What changes when a site that waits may be told something new."""
        now = self.clock()
        begun = self.begun or self.description.start.begins(self._turns(now), now)
        return self._state(), begun

    @property
    def _seen(self) -> int:
        """How many answers the last reading has seen."""
        return int(self._database.only("SELECT ifnull(max(version), 0) FROM readings")[0])

    @property
    def _withdrawn_lately(self) -> bool:
        """Whether a site was withdrawn after the last reading."""
        last = "(SELECT ifnull(max(number), 0) FROM readings)"
        return bool(self._database.only(f"SELECT count(*) FROM sites WHERE withdrawn_after >= {last}")[0])

    def read_if_due(self) -> bool:
        """Read all answers, and ask the next question, if all are there that can be expected; tell whether q is new.

        What is read counts only if nothing has come meanwhile. Answers that nobody could read are kept, and q stays.
        """
        with self.at_once():
            asked, now = self.asked, self._state()
            more = self._due(asked)
        if more is None or now == self._tried:
            return False
        try:
            found = self._checked(asked, now[0], more)
        except AbsurdRelease as error:
            self._database.update("federation", {"problem": wire.printable(error)})
            self._tried = now
            return False
        if int(found.count) < int(asked.count):  # of the sites that are left, nobody has answered the last one yet
            found = replace(found, count=asked.count)
        change = float(found.posterior.kl(asked.posterior))
        arrived = math.inf if np.isnan(found.arrived) else float(found.arrived)
        reading = now[0], int(found.count), change, arrived, float(found.limit), self.clock()
        with self._database.transaction():
            if self._state() != now:
                return False  # something came first: it is read with it, at the next look
            self._database.insert("readings", dataclasses.astuple(Reading(None, *reading)))  # type: ignore[arg-type]
            self._database.update("federation", {"asked": wire.pack(found), "problem": ""})
        return True

    def _state(self) -> tuple[int, int, str, tuple[str, ...], int]:
        """Return all that a reading depends on: answers, readings, the end, withdrawals, the number of questions."""
        (readings,) = self._database.only("SELECT count(*) FROM readings")
        return self.version, int(readings), self.stop, self.withdrawn, self.most_questions

    def _checked(self, asked: Asked, version: int, more: bool) -> Asked:
        """Return what is read out of all answers, or raise `AbsurdRelease` if nobody could work with it."""
        spec = self.description.spec
        try:
            with np.errstate(all="ignore"):
                found = self.read(self.counted(), asked, version, more=more)
                change = found.posterior.kl(asked.posterior)
            sound = np.isfinite(change) and all(np.isfinite(leaf).all() for leaf in vars(found.posterior).values())
            if int(found.count) > int(asked.count):
                spec.algorithm.check_sent(
                    take(found.questions, int(asked.count)), self.description.schema.feature_bound
                )
        except (ValueError, ArithmeticError) as error:
            raise AbsurdRelease(f"No posterior can be read with the last answers: {error}") from None
        if not sound:
            raise AbsurdRelease("With the last answers the posterior would be beyond all measure.")
        return found

    def verify(self) -> float:
        """Read all answers again, as often as they were read; return how far q is from that which is stored.

        That is KL(stored q || q read again), in nats. Raises `InputError` if a question is not the one that follows
        from the answers that were there when it was asked, or if answers are missing.
        """
        self._known = None  # all of it comes from the file
        with self.at_once():
            applied, sites, readings = self.applied(), self.sites(), self.readings()
            factors, asked = self.factors(), self.asked
        damaged = f"{self._database.path} contradicts itself: {{}}. Restore a copy."
        numbers = {site.name: [each.sequence for each in applied if each.site == site.name] for site in sites}
        for place, site in enumerate(sites):
            answered = int(take(factors, place).answered)
            if numbers[site.name] != list(range(1, answered + 1)) or answered != site.sequence:
                raise InputError(damaged.format(f"updates of {site.name!r} are missing"))
        again, count = self.first, 1
        for reading in readings:
            seen = first_of(factors, reading.seen(sites, applied))
            again = self.read(seen, asked, reading.version, more=reading.asked > count)
            if reading.asked > count:
                count, made = reading.asked, take(again.questions, reading.asked - 1)
                if not _alike(made, take(asked.questions, reading.asked - 1)):
                    raise InputError(damaged.format(f"question {count} is not that which follows from the answers"))
        if count != int(asked.count):
            raise InputError(damaged.format(f"{asked.count} questions are there, and {count} were asked"))
        return float(asked.posterior.kl(again.posterior))

    def _stop_if_due(self, time_now: float) -> None:
        stop, started = self._database.only("SELECT stop, started FROM federation")
        if stop:
            return
        states = [state for (state,) in self._database.execute(f"SELECT DISTINCT state FROM sites WHERE {THERE}")]
        if reason := self.description.stop.reason(states, 0.0 if started is None else time_now - started):
            self.end(reason)


def _alike(one: Question, other: Question) -> bool:
    """Tell whether questions are the same but for rounding, which may differ between machines."""
    pairs = zip(leaves(one), leaves(other), strict=True)
    return all(np.allclose(a, b, rtol=1e-4, atol=1e-4 * (1e-30 + np.max(np.abs(b)))) for a, b in pairs)

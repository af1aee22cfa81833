"""The durable site: what to send next, and what to do with the answer, through every crash.

    charge the ledger -> compute -> commit the bytes of the release -> send -> note that it was acknowledged

A site numbers its releases. What was committed is sent until it is acknowledged, always the same bytes: no new noise,
no new spending. A site that is killed before the commit has paid for something that nobody will see.

The site alone decides what it spends, by its own ledger. The coordinator may say anything: a question that is none,
another history, the end. At worst the site stops.

    working   answers the coordinator's questions in turn, one release each; asks again while it has to wait
    spent     has answered all questions, or has nothing left to spend; waits for the end, and is then
    finished
    paused    asks, and releases nothing; left: says so and goes. Both are wishes of people at the site
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedvi.errors import BudgetClosed, ImproperError, InputError, MalformedRelease, NotReached, SiteRefused
from fedvi.federation import wire
from fedvi.federation.description import Description
from fedvi.federation.site_file import SiteFile, SiteState
from fedvi.federation.wire import FINISHED, LEFT, PAUSED, SPENT, WORKING
from fedvi.federation.worker import declared, purpose
from fedvi.files import Closing
from fedvi.inference.private_client import PrivateClient
from fedvi.inference.question import Question
from fedvi.inference.update import ClientState
from fedvi.privacy.ledger import ledger as ledgers
from fedvi.pytree import tree_map

MOST_REFUSALS = 3
"""Releases refused in a row after which a site stops: each has cost privacy."""


class Site(Closing):
    """A site at work: its rows, ledger and file. `request` and `receive` in turns; see `transports.base.run`."""

    def __init__(self, description: Description, file: SiteFile, ledger: Path, worker: Callable[[], PrivateClient]):
        self._description, self._file, self._ledger, self._worker = description, file, ledger, worker
        self._open: PrivateClient | None = None
        self._refusals = 0
        self._question: Question | None = None
        self._saying = ""
        self._declared: wire.Declared | None = None

    @classmethod
    def open(
        cls, path: Path, description: Description, ledger: Path, worker: Callable[[], PrivateClient], now: bool = True
    ) -> Site:
        """Open the site's file.

        worker: opens rows and ledger (`open_worker`). now: do so at once, and make the file if there is none; else when
        a question comes.
        """
        if path.exists():
            with SiteFile.open(path) as file:
                if file.load().federation != description.digest:
                    raise InputError(f"{path} belongs to another federation. Give this one a file of its own.")
        with contextlib.ExitStack() as undo:
            private = worker() if now else None  # from here on, nobody else works for this site: the ledger is locked
            if private is not None:
                undo.callback(private.close)
                if not path.exists():
                    SiteFile.create(path, description.digest, private.ledger.book.identity).close()
            site = cls(description, SiteFile.open(path), ledger, worker)
            undo.callback(site._file.close)
            if private is not None:
                site._take(private)
            undo.pop_all()
        return site

    def request(self) -> bytes | None:
        """Return what to send next, made and paid for if need be; None when there is nothing more to say."""
        site = self._file.load()
        if site.failed:
            return None
        if site.pending is not None:
            self._saying = WORKING
            return site.pending
        if site.wanted == LEFT:
            return None if site.said == LEFT else self._poll(site, LEFT)
        if site.said == FINISHED and site.stop:
            return None
        if site.stop:
            return self._poll(site, FINISHED)
        if site.wanted == PAUSED:
            return self._poll(site, PAUSED)
        if self.remaining == 0:
            return self._poll(site, SPENT)
        if self._question is None:
            return self._poll(site, WORKING)
        return self._answer(site, self._question)

    def receive(self, data: bytes, seconds: float = 0.0) -> None:
        """Take the answer to the last request, which came after so many seconds.

        Raises `NotReached` if it is none, and `SiteRefused` if the coordinator and this site do not agree.
        """
        try:
            answer = wire.decode(data, wire.Answer, wire.size_of(self._description.form) + wire.LARGEST_HEADER)
        except MalformedRelease as error:
            raise NotReached(f"The answer cannot be read: {error}") from None
        site = self._file.load()
        if answer.federation != self._description.digest:
            raise SiteRefused("The coordinator answers for another federation. Use the invitation that it gave you.")
        if answer.kind == wire.REFUSED:
            self._refused(answer, site)
        elif answer.applied != site.releases:
            raise SiteRefused(
                f"The coordinator has applied {answer.applied} releases of this site, which made {site.releases}: "
                "its file or this site's is an older copy. Restore the newest one; nothing more is released."
            )
        else:
            self._question = self._checked(answer, site)
            if site.pending is not None:
                self._refusals = 0
            latency = site.latency
            if site.before is not None:  # the mean over the last ten or so updates
                latency = seconds if latency is None else 0.9 * latency + 0.1 * seconds
            told = replace(site, version=answer.version, heard=time.time(), stop=answer.stop, note="", latency=latency)
            self._file.commit(replace(told, pending=None, before=None, said=self._saying, news=answer.news))

    @property
    def state(self) -> SiteState:
        """Where the site is."""
        return self._file.load()

    @property
    def noticed(self) -> tuple[str, ...]:
        """What the people here should know about their rows."""
        return self._private.noticed

    @property
    def remaining(self) -> int:
        """How many answers are left: of the questions that are asked, and of what the ledger admits."""
        site = self._file.load()
        if self._open is None and site.remaining is None:
            return self._description.spec.updates - site.releases
        admitted = site.remaining if self._open is None else self._open.remaining
        made = site.releases if self._open is None else int(self._open.state.sequence)
        return max(min(admitted or 0, self._description.spec.updates - made), 0)

    @property
    def waiting(self) -> bool:
        """Whether the next request would only ask again."""
        site = self._file.load()
        asks = site.wanted == PAUSED or self._question is None or self.remaining == 0
        return asks and not site.stop and site.pending is None and site.wanted != LEFT

    @property
    def patient(self) -> bool:
        """Whether the answer to the last request may be held back until there is a question."""
        releases = self._file.load().pending is not None
        return self._saying not in (FINISHED, LEFT) and not (releases and self.remaining == 0)

    @property
    def is_open(self) -> bool:
        """Whether rows and ledger are open."""
        return self._open is not None

    def rest(self) -> None:
        """Let go of rows and ledger until the next question comes: a process that waits then needs no JAX."""
        if self._open is not None:
            remaining, private, self._open = self._open.remaining, self._open, None
            private.close()
            self._question = self._declared = None
            self._file.commit(replace(self._file.load(), remaining=remaining))

    def note(self, text: str) -> None:
        """Write down for the people here what is wrong now."""
        site = self._file.load()
        if site.note != text[:2000]:
            self._file.commit(replace(site, note=text[:2000]))

    def fail(self, reason: str) -> None:
        """Stop for good, until people have looked and joined again."""
        self._file.commit(replace(self._file.load(), failed=reason[:2000]))

    def close(self) -> None:
        """Close file and ledger."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._file.close)
            self.rest()

    @property
    def _private(self) -> PrivateClient:
        """The client, opened if it is not."""
        if self._open is None:
            private = self._worker()
            try:
                self._take(private)
            except BaseException:
                private.close()
                raise
            return private
        return self._open

    def _take(self, private: PrivateClient) -> None:
        """Work with an open ledger from here on."""
        saved = self._file.load()
        if saved.ledger != private.ledger.book.identity:
            raise InputError(
                f"{self._file.path} goes with another ledger than {self._ledger}. Give both, or neither, of one site."
            )
        self._file.stop_if_lost(private.ledger.book, purpose(self._description))
        if saved.state is not None:
            private.state = _unpacked(private.state, saved.state)
        self._open, self._declared = private, None

    def _answer(self, site: SiteState, question: Question) -> bytes:
        """Pay for an answer, make it and commit its bytes; or ask, if the ledger admits none."""
        private = self._private
        before, number, entry = private.state, site.releases + 1, private.ledger.book.head.number + 1
        if int(before.sequence) + 1 != number:
            raise SiteRefused(
                f"Expected to make release {number}, got {int(before.sequence) + 1}: the site's file is damaged. "
                "Restore its newest copy."
            )
        try:
            release = private.update(question)
        except BudgetClosed:
            return self._poll(site, SPENT)
        try:
            arrays, state = wire.arrays_of(release.factor), wire.pack(private.state)
            data = self._message(wire.FACTOR, number, WORKING, arrays)
            made = replace(site, pending=data, before=wire.pack(before), state=state, releases=number)
            self._file.commit(replace(made, remaining=private.remaining), paid_by=entry)
        except BaseException:  # paid for, and lost: such as on a full disk
            private.state = before
            raise
        self._saying = WORKING
        return data

    def _poll(self, site: SiteState, state: str) -> bytes:
        self._saying = state
        return self._message(wire.POLL, site.releases, state, {})

    def _message(self, kind: str, sequence: int, state: str, arrays: wire.Arrays) -> bytes:
        federation, schema = self._description.digest, self._description.schema.digest
        return wire.encode(wire.Request(federation, schema, kind, sequence, state, self._spent(), arrays))

    def _spent(self) -> wire.Declared:
        """Return what the ledger says was spent in this federation; while it is closed, nothing changes.

        What the rows paid for elsewhere is nobody's business here; the number of rows is the declared one.
        """
        if self._declared is None or self._open is not None:
            book = ledgers.read(self._ledger) if self._open is None else self._open.ledger.book
            self._declared = declared(book, purpose(self._description))
        return self._declared

    def _refused(self, answer: wire.Answer, site: SiteState) -> None:
        """Drop a release that was refused, or stop."""
        if answer.code in wire.HARMLESS and site.before is not None and answer.applied == site.releases - 1:
            dropped = replace(site, pending=None, before=None, state=site.before, releases=site.releases - 1)
            self._file.commit(replace(dropped, note=answer.reason))
            if self._open is not None:
                self._open.state = _unpacked(self._open.state, site.before)
            self._question = None
            self._refusals += 1
            if self._refusals < MOST_REFUSALS:
                return
        elif answer.code not in wire.REFUSALS:
            raise NotReached(f"The coordinator cannot answer now: {answer.reason}")
        raise SiteRefused(f"The coordinator refuses: {answer.reason}")

    def _checked(self, answer: wire.Answer, site: SiteState) -> Question | None:
        """Return the question in an answer; None if there is none to answer now."""
        if answer.kind == wire.QUESTION and not (self.is_open or (site.wanted == WORKING and self.remaining)):
            return None  # whoever pauses, leaves or has spent its budget opens no rows for it
        private = None if answer.kind == wire.WAIT else self._private  # here: what is wrong with rows is our own fault
        try:
            if private is None:
                wire.tree_of((), answer.arrays)
                return None
            question = wire.tree_of(self._description.form, answer.arrays)
            with np.errstate(all="ignore"):  # what is not finite is refused
                private.check(question)
        except (MalformedRelease, ImproperError, InputError) as error:
            raise SiteRefused(f"The coordinator sent something that is no question to answer: {error}") from None
        return question


def _unpacked(template: ClientState, data: bytes) -> ClientState:
    return tree_map(np.asarray, wire.unpack(template, data))

"""Every exception that fedvi raises on purpose.

    FedviError
    ├── InputError            a value given by the caller is not usable (also a ValueError)
    ├── ImproperError         a posterior or cavity has no finite normaliser (also an ArithmeticError)
    ├── ReleaseRefused        the server turned a release away; its state is unchanged
    │   ├── UnknownClient
    │   ├── MalformedRelease  not a message of ours; wrong type, shape or dtype
    │   ├── NonFiniteRelease
    │   ├── AbsurdRelease     numbers beyond what any site can know
    │   ├── OutOfSequence     replayed, reordered or skipped
    │   ├── OtherFederation   the site was set up for another one
    │   ├── Withdrawn         its answers were taken out of the posterior
    │   ├── OtherSchema       the client encodes its rows by another feature schema
    │   └── ImproperRelease   applying it would make the posterior improper
    ├── FileFailed            a file could not be read or written now: a full disk, another process
    ├── NotReached            no answer came; what was sent may have arrived, and is sent again
    ├── SiteRefused           the coordinator and this site do not agree; nothing more is released
    ├── SimulationsFailed     some of the runs made together went wrong; the others were made
    ├── ResumeError           a saved run does not belong to the run it should continue
    └── LedgerError           a privacy ledger could not do what was asked; nothing was drawn or computed
        ├── BudgetClosed      the update would spend more than was allowed
        ├── ChosenLate        settings were chosen after something had been released
        ├── LedgerInUse       another process has it open
        ├── LedgerDamaged     truncated, corrupted, or no ledger at all
        ├── LedgerRolledBack  an older copy took the place of the ledger
        └── OtherData         the ledger belongs to other data, or the data to another ledger

    SimulationInterrupted     a KeyboardInterrupt that carries the unfinished result

Warnings: `FewUnits` (so few rows that a promise is worth little), `ValuesClipped` (features beyond their public bound).

A message gives the name, the value and the remedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar


class FedviError(Exception):
    """Base of all errors that fedvi raises on purpose.

    result: when a simulation fails on its way, everything that was done before (`fedvi.simulation.Result`).
    """

    result: Any = None


class FewUnits(UserWarning):
    """So few units of privacy are protected that the promise is worth little."""


class ValuesClipped(UserWarning):
    """Features were beyond their public bound, and count as the bound."""


class InputError(FedviError, ValueError):
    """A value given by the caller is not usable."""


class ImproperError(FedviError, ArithmeticError):
    """A distribution that must be normalisable is not."""


class ReleaseRefused(FedviError):
    """The server turned a release away; its state is unchanged.

    code: what the coordinator sends for it; part of the wire format.
    """

    code: ClassVar[str] = "refused"


class UnknownClient(ReleaseRefused):
    """The release comes from a client that the server does not know."""

    code = "unknown site"


class Withdrawn(ReleaseRefused):
    """The site's answers were taken out of the posterior; nothing more is taken of it."""

    code = "withdrawn"


class MalformedRelease(ReleaseRefused):
    """The bytes are no message of ours, or the release has the wrong type, shape or dtype."""

    code = "malformed"


class NonFiniteRelease(ReleaseRefused):
    """The release holds NaN or infinity."""

    code = "not finite"


class AbsurdRelease(ReleaseRefused):
    """The release holds numbers beyond what any site of the federation can know."""

    code = "absurd"


class OutOfSequence(ReleaseRefused):
    """The release was replayed, came out of order or skips a number."""

    code = "out of sequence"


class OtherFederation(ReleaseRefused):
    """The site was set up for another federation."""

    code = "other federation"


class OtherSchema(ReleaseRefused):
    """The client encodes its rows by another feature schema than the federation."""

    code = "other schema"


class ImproperRelease(ReleaseRefused, ImproperError):
    """Applying the release would make the posterior improper."""

    code = "improper"


class FileFailed(FedviError):
    """A file could not be read or written now, such as on a full disk."""


class NotReached(FedviError):
    """No answer came. What was sent may have arrived: the same bytes are sent again."""


class SiteRefused(FedviError):
    """The coordinator and this site do not agree about the federation or its history; nothing more is released."""


class SimulationsFailed(FedviError):
    """Some of the runs of `simulate_all` went wrong.

    outcomes: for every run its result, or the error that ended it, which has a `result` too.
    """

    def __init__(self, outcomes: Sequence[Any]):
        errors = {number: outcome for number, outcome in enumerate(outcomes) if isinstance(outcome, Exception)}
        first = min(errors)
        super().__init__(
            f"{len(errors)} of {len(outcomes)} runs went wrong. Run {first}: {errors[first]} "
            "The error's `outcomes` has what every run did."
        )
        self.outcomes = list(outcomes)


class ResumeError(FedviError):
    """A saved run does not belong to the run that it should continue."""


class LedgerError(FedviError):
    """A privacy ledger could not do what was asked; nothing was drawn or computed."""


class BudgetClosed(LedgerError):
    """The update would spend more than was allowed."""


class ChosenLate(LedgerError):
    """Settings were chosen after something had been released, which the accountant does not cover."""


class LedgerInUse(LedgerError):
    """Another process has the ledger open."""


class LedgerDamaged(LedgerError):
    """The ledger is truncated, corrupted, or no ledger at all."""


class LedgerRolledBack(LedgerError):
    """An older copy took the place of the ledger."""


class OtherData(LedgerError):
    """The ledger belongs to other data, or the data to another ledger."""


class SimulationInterrupted(KeyboardInterrupt):
    """Ctrl-C during `simulate`: nothing is lost.

    result: what was done until then. outcomes: for every run of `simulate_all` the same, or the error that ended it.
    """

    def __init__(self, outcomes: Sequence[Any]):
        results: list[Any] = [getattr(outcome, "result", outcome) for outcome in outcomes]
        done = sum(result.checkpoint.communications for result in results)
        super().__init__(
            f"Interrupted after {done} communications; continue with resume=interrupted.result.checkpoint, "
            "or the checkpoint of another of interrupted.outcomes."
        )
        self.outcomes = list(outcomes)
        self.result = results[0]

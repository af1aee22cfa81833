"""Every exception that fedvi raises on purpose.

    FedviError
    ├── InputError            a value given by the caller is not usable (also a ValueError)
    ├── ImproperError         a posterior or cavity has no finite normaliser (also an ArithmeticError)
    ├── ReleaseRefused        the server turned a release away; its state is unchanged
    │   ├── UnknownClient
    │   ├── MalformedRelease  wrong type, shape or dtype
    │   ├── NonFiniteRelease
    │   ├── OutOfSequence     replayed, reordered or skipped
    │   └── ImproperRelease   applying it would make the posterior improper
    └── ResumeError           a saved run does not belong to the run it should continue

    SimulationInterrupted     a KeyboardInterrupt that carries the unfinished result

A message gives the name, the value and the remedy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedvi.federation.result import Result


class FedviError(Exception):
    """Base of all errors that fedvi raises on purpose.

    result: when a simulation fails on its way, everything that was done before.
    """

    result: Result | None = None


class InputError(FedviError, ValueError):
    """A value given by the caller is not usable."""


class ImproperError(FedviError, ArithmeticError):
    """A distribution that must be normalisable is not."""


class ReleaseRefused(FedviError):
    """The server turned a release away; its state is unchanged."""


class UnknownClient(ReleaseRefused):
    """The release comes from a client that the server does not know."""


class MalformedRelease(ReleaseRefused):
    """The release has the wrong type, shape or dtype."""


class NonFiniteRelease(ReleaseRefused):
    """The release holds NaN or infinity."""


class OutOfSequence(ReleaseRefused):
    """The release was replayed, came out of order or skips a number."""


class ImproperRelease(ReleaseRefused, ImproperError):
    """Applying the release would make the posterior improper."""


class ResumeError(FedviError):
    """A saved run does not belong to the run that it should continue."""


class SimulationInterrupted(KeyboardInterrupt):
    """Ctrl-C during `simulate`: nothing is lost, `result` holds what was done until then."""

    def __init__(self, result: Result):
        super().__init__(
            f"Interrupted after {result.checkpoint.communications} communications; "
            "continue with simulate(..., resume=interrupted.result.checkpoint)."
        )
        self.result = result

"""When a federation ends: budgets spent everywhere, a posterior that has come to rest, or time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from fedvi.checks import in_range, whole
from fedvi.federation.wire import FINISHED, LEFT, PAUSED, SPENT


@dataclasses.dataclass(frozen=True)
class StoppingRule:
    """The rule. That every site has spent its budget, or left, always ends a federation.

    change, quiet: end when `KL(new q || old q)`, in nats, was below `change` for so many updates in a row, of every
        site at least one: q is at rest when all have looked at it, and no site ends what others have not begun. Those
        that are paused, have spent their budget or left are not waited for. 0: never.
    hours: end so long after the first release; 0: never.
    """

    change: float = 0.0
    quiet: int = 100
    hours: float = 0.0

    def __post_init__(self) -> None:
        in_range("stop.change", self.change, 0)
        whole("stop.quiet", self.quiet, 1)
        in_range("stop.hours", self.hours, 0)

    def reason(self, sites: Sequence[tuple[str, int]], seconds: float) -> str:
        """Return why the federation ends now, or an empty text.

        sites: state of each, and how many of the last updates in a row with little change are its own.
        seconds: since the first release.
        """
        if all(state in (SPENT, FINISHED, LEFT) for state, _ in sites):
            return "every site has spent its budget or left"
        calm = sum(own for _, own in sites)
        waiting = any(own == 0 and state not in (PAUSED, SPENT, FINISHED, LEFT) for state, own in sites)
        if self.change > 0 and calm >= self.quiet and not waiting:
            return f"{calm} updates in a row changed the posterior by less than {self.change:g} nats"
        if self.hours > 0 and seconds >= 3600 * self.hours:
            return f"{self.hours:g} hours have passed"
        return ""

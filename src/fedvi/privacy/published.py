"""How the DP-PVI paper's published runs accounted for privacy, to compare with them. **Not a guarantee.**

Two things in them are not proven: a client stopped after its budget was exceeded, and batches of fixed size were
accounted as if every row had been drawn independently. Both are rebuilt here under names that say so. Ledgers refuse
them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from jaxtyping import Float

from fedvi.numerics import Array
from fedvi.privacy.budget import PAPER, Budget
from fedvi.privacy.events import AnyEvent, Event, noise_given, poisson_gaussian
from fedvi.privacy.mechanism import GaussianMechanism
from fedvi.privacy.sampling import FixedSize, check_batch
from fedvi.pytree import pytree, static


@dataclasses.dataclass(frozen=True)
class PublishedRule(Budget):
    """The paper's stopping rule: updates go on until one has exceeded epsilon. Not a guarantee."""

    delta: float | str = PAPER
    accountant: str = "moments"
    caveat = "the client stops after its epsilon was exceeded, as in the paper"

    def most_updates(self, event: AnyEvent, already: Mapping[Any, int] | None = None) -> int:
        """Return one more than the budget admits."""
        return super().most_updates(event, already) + 1


@pytree
class FixedSizeGaussian(FixedSize, GaussianMechanism):
    """Batches of fixed size without replacement, accounted as Poisson sampling. Not a guarantee."""

    noise_multiplier: float | Float[Array, ""] | None = 5.0
    clip_norm: float | Float[Array, ""] = 75.0
    fraction: float = static(default=0.02)
    minimum: int = static(default=20)
    clips: str = static(default="loss")
    caveat = "batches of fixed size are accounted as Poisson sampling, as in the paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_batch(self.minimum, self.fraction)

    def event(self, public_rows: int, steps: int, numbers: int) -> Event:
        """Return the event that the paper claims."""
        return poisson_gaussian(self.noise_multiplier, self.batch_size(public_rows) / public_rows, steps, numbers)

    def proven_epsilon(self, rows: int, steps: int, delta: float) -> float:
        """Return what is proven for the batches as they are drawn: without replacement, one row exchanged for another.

        By Rényi DP (Wang, Balle and Kasiviswanathan, 2019). An exchanged row moves a sum by two clip norms.
        """
        return _without_replacement(
            rows, self.batch_size(rows), float(noise_given(self.noise_multiplier)), steps, delta
        )


@functools.lru_cache(maxsize=1024)
def _without_replacement(rows: int, batch: int, noise_multiplier: float, steps: int, delta: float) -> float:
    import dp_accounting as dp
    from dp_accounting import rdp

    if steps == 0:
        return 0.0
    orders = list(range(2, 33))  # the best one is around 10
    accountant = rdp.RdpAccountant(orders, neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    step = dp.GaussianDpEvent(noise_multiplier / 2)  # this accountant does not double the sensitivity itself
    accountant.compose(dp.SampledWithoutReplacementDpEvent(rows, batch, step), steps)
    return float(accountant.get_epsilon(delta))

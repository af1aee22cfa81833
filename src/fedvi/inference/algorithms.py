"""Algorithms: which local problem a client is asked to solve.

| algorithm     | start       | anchor of the KL     | likelihood     | target factor      |
|---------------|-------------|----------------------|----------------|--------------------|
| PVI           | q           | q / t_m (the cavity) | own rows       | t_m * q' / q       |
| GlobalVI      | q           | prior                | scaled to all  | t_m * q' / q       |
| CentralisedVI | as PVI, after pooling all rows into one client                               |
| Committee     | prior^share | prior^share          | own rows       | q' / prior^share   |
| NoiseAwarePVI | a question  | none: private sums over all rows, the answer (`fedvi.inference.asking`)     |

All of them are the same client step and the same server step; a new one is a subclass with a `problem` method. How much
the likelihood counts is said by `likelihood_scale` alone: clip, grid and noise of a private step follow from it too.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar, Self

import numpy as np
from jaxtyping import Float

from fedvi.checks import in_range, not_a_class, one_of
from fedvi.errors import InputError
from fedvi.families.base import Factor, GaussianFamily, extent, require_proper
from fedvi.inference.local_problem import GradientSteps, Problem, Public, Solver, forgetful_adam
from fedvi.inference.rows import CheckedTable
from fedvi.numerics import Array
from fedvi.privacy.budget import Budget, least_noise
from fedvi.privacy.client_level import ClientLevel
from fedvi.privacy.events import AnyEvent
from fedvi.privacy.lattice import Lattice
from fedvi.privacy.mechanism import Protection
from fedvi.privacy.without_privacy import FullBatch, Minibatch
from fedvi.pytree import pytree, static
from fedvi.tables.layout import Layout

LARGEST_PREDICTOR = 1e6
"""A posterior's means and standard deviations, times the bound of features, are no larger where rows are looked at."""


def thorough() -> GradientSteps:
    """Return a solver that takes the local problem to its optimum: for algorithms that do not come back often."""
    return GradientSteps(1000, 0.02, FullBatch(), forgetful_adam)


class Algorithm(abc.ABC):
    """A way to refine factors.

    solver: how the local problem is solved.
    damping: how far the factor moves towards the target, `t <- t * (target / t)^damping`.
    repair: set negative precisions of the new factor to zero and count them; post-processing.
    client_level: clip and noise of the whole change, to protect all of a client's data as one; None for none. To
        protect single rows, choose a private mechanism in the solver instead.
    asks: whether the server asks questions, instead of sending q.
    """

    solver: Solver[Any]
    damping: float | Float[Array, ""]
    repair: bool
    client_level: ClientLevel | None
    asks: ClassVar[bool] = False

    @abc.abstractmethod
    def problem(self, public: Public, q: GaussianFamily, factor: Any) -> Problem:
        """Return the local problem of a client that sees q and holds `factor`."""

    def likelihood_scale(self, public: Public, public_rows: int) -> float:
        """Return the weight of the likelihood of a client that declares so many rows."""
        return 1.0

    def row_scale(self, public: Public, public_rows: int) -> float:
        """Return the weight of the likelihood of each row of a batch."""
        expected = self.solver.mechanism.batch_size(public_rows)
        return public_rows / expected * self.likelihood_scale(public, public_rows)

    def change(self, factor: Factor, target: Factor) -> Factor:
        """Return what the factor is multiplied by on its way to the target: `(target / factor)^damping`."""
        return (target / factor) ** self.damping

    def first_factor(self, prior: GaussianFamily) -> Factor:
        """Return the factor that every client starts from."""
        return prior.one()

    @property
    def most_updates(self) -> float:
        """How many updates of a client make sense."""
        return math.inf

    def laid_out(self, layout: Layout) -> Algorithm:
        """Return the algorithm for columns of which that is public."""
        return self

    def planned(
        self, dim: int, public_rows: Sequence[int], budgets: Sequence[Budget] | None, updates: float = math.inf
    ) -> Algorithm:
        """Return the algorithm with what was left open chosen from public numbers: nothing, unless one says so.

        dim: number of weights. public_rows: of every client. budgets: of every client, with fixed deltas; None if
        nothing limits them. updates: that a client may make.
        """
        return self

    def first_asked(self, model: Any, prior: GaussianFamily) -> Any:
        """Return the first question, for algorithms by which the server asks; None where it sends q."""
        return None

    def asked_next(self, model: Any, state: Any, *, more: bool = True) -> Any:
        """Return what is read out of the answers in a server's state, and the next question if there is to be more."""
        raise InputError(f"Expected an algorithm by questions, got {type(self).__name__}, which sends q.")

    def check_sent(self, sent: Any, feature_bound: float) -> None:
        """Raise unless q may be looked at: it is proper, and not so wide or far away that rounding decides.

        No row is looked at.
        """
        require_proper(sent, "posterior that the client received")
        found = float(extent(sent)) * feature_bound
        if not found <= LARGEST_PREDICTOR:
            raise InputError(
                f"Expected a posterior whose means and standard deviations, times the bound of features, are up to "
                f"{LARGEST_PREDICTOR:g}, got {found:.3g}: such a q says nothing about rows. Find who spoilt it."
            )

    def arrange(self, tables: dict[str, CheckedTable]) -> dict[str, CheckedTable]:
        """Return the clients that the algorithm runs with."""
        return tables

    @property
    def protection(self) -> Protection:
        """What adds noise, if anything does: to sums over rows, or to the whole change of the factor."""
        return self.solver.mechanism if self.client_level is None else self.client_level

    def numbers(self, prior: GaussianFamily) -> int:
        """Return how many numbers get noise together, in a step or in a release."""
        return prior.size if self.client_level is None else self.first_factor(prior).size

    def event(self, prior: GaussianFamily, public_rows: int) -> AnyEvent:
        """Return what one update of a client that declares so many rows does to them."""
        return self.protection.event(public_rows, self.solver.steps, self.numbers(prior))

    def lattice(self, public: Public, public_rows: int) -> Lattice | None:
        """Return the lattice of what is released; None if nothing is private."""
        scale = self.row_scale(public, public_rows)
        return self.protection.lattice(self.numbers(public.prior), public_rows, scale)

    def with_noise(self, noise_multiplier: float) -> Self:
        """Return the same algorithm with this noise."""
        values: Any = self
        changed: dict[str, Any] = {"solver": self.solver.with_noise(noise_multiplier)}
        if self.client_level is not None:
            changed = {"client_level": self.client_level.with_noise(noise_multiplier)}
        loud: Self = dataclasses.replace(values, **changed)
        return loud

    def calibrated(self, prior: GaussianFamily, budget: Budget | None, public_rows: int, updates: float) -> Self:
        """Return the algorithm with the least noise with which so many updates of so many rows fit the budget.

        Noise is found where it was left open (`noise_multiplier=None`), for every client by itself: clients with other
        budgets, or other numbers of rows, need other noise. budget: with a fixed delta.
        """
        if self.protection.noise_multiplier is not None:
            return self
        if budget is None or updates == math.inf:
            raise InputError(
                "The algorithm leaves its noise open (noise_multiplier=None): give a budget and a number of updates "
                "(simulate: privacy and max_updates), from which it is found, or a noise_multiplier."
            )
        event = self.with_noise(1.0).event(prior, public_rows)
        return self.with_noise(least_noise(event, int(max(updates, 1)), budget))

    def __post_init__(self) -> None:
        not_a_class("solver", self.solver)
        not_a_class("client_level", self.client_level)
        in_range("damping", self.damping, 0, 1, open_low=True)
        if self.client_level is not None and self.solver.mechanism.private:
            raise InputError(
                f"Expected one unit of privacy, got two: {type(self.solver.mechanism).__name__} protects rows and "
                "client_level the whole client. Leave one out."
            )


@pytree
class PVI(Algorithm):
    """Partitioned variational inference (Bui et al., 2018), with the paper's settings as defaults."""

    solver: Solver[Any] = field(default_factory=GradientSteps)
    damping: float | Float[Array, ""] = 0.1
    repair: bool = static(default=True)
    client_level: ClientLevel | None = None

    def problem(self, public: Public, q: GaussianFamily, factor: Any) -> Problem:
        """Tie q' to the cavity q / t_m."""
        return Problem(start=q, removed=factor, base=factor)


@pytree
class CentralisedVI(PVI):
    """Variational inference on the pooled rows: the gold standard, and not federated."""

    solver: Solver[Any] = field(default_factory=thorough)
    damping: float | Float[Array, ""] = 1.0

    def arrange(self, tables: dict[str, CheckedTable]) -> dict[str, CheckedTable]:
        """Pool all rows into one client."""
        x, y = zip(*tables.values(), strict=True)
        return {"pooled": (np.concatenate(x), np.concatenate(y))}


@pytree
class GlobalVI(Algorithm):
    """Federated global VI, the paper's baseline: clients take turns at stochastic steps on the global objective.

    Each client treats its rows as a sample of all rows. Its factor is only the sum of its steps: nothing is repaired.
    """

    solver: Solver[Any] = field(default_factory=lambda: GradientSteps(1, 0.05, Minibatch()))
    damping: float | Float[Array, ""] = 1.0
    repair: bool = static(default=False)
    client_level: ClientLevel | None = None

    def problem(self, public: Public, q: GaussianFamily, factor: Any) -> Problem:
        """Tie q' to the prior."""
        return Problem(start=q, removed=q / public.prior, base=factor)

    def likelihood_scale(self, public: Public, public_rows: int) -> float:
        """Scale the likelihood to the total number of rows."""
        return float(public.rows) / public_rows


@pytree
class Committee(Algorithm):
    """Bayesian committee machine: each client infers alone and communicates once; the server multiplies the results.

    prior: `same` gives every client the whole prior, and the server divides out the copies; `split` gives every client
    prior^(1/M), a weaker one.
    """

    solver: Solver[Any] = field(default_factory=thorough)
    damping: float | Float[Array, ""] = 1.0
    repair: bool = static(default=True)
    client_level: ClientLevel | None = None
    prior: str = static(default="same")

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("prior", self.prior, ("same", "split"))

    @property
    def most_updates(self) -> float:
        """One: a second update would only repeat the first."""
        return 1

    def problem(self, public: Public, q: GaussianFamily, factor: Any) -> Problem:
        """Tie q' to the client's share of the prior, whatever the others did."""
        share = public.prior if self.prior == "same" else public.prior ** (1 / public.clients)
        return Problem(start=share, removed=share.one(), base=factor.one())

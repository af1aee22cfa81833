"""What is audited: an algorithm on the code path that real updates take, with rows and noise that the auditor chooses.

The auditor is the adversary of differential privacy: it picks all rows, a canary among them, and the q that the server
sends. It sees everything that has noise, before it is rounded, and all that leaves or stays at the client. The code is
`draw` and `update`, as sites and simulations call them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from fedvi.compiling import jax, jnp
from fedvi.errors import InputError
from fedvi.families.base import GaussianFamily
from fedvi.families.mean_field import Gaussian
from fedvi.inference.algorithms import Algorithm
from fedvi.inference.local_problem import Draws, Public
from fedvi.inference.rows import DEFAULT_FEATURE_BOUND, Rows
from fedvi.inference.update import ClientState, Release, draw, init_client, update
from fedvi.models.base import Model
from fedvi.models.logistic import LogisticRegression
from fedvi.numerics import Array, on_row_grid
from fedvi.privacy.events import CLIENT, Event
from fedvi.privacy.lattice import Lattice, as_pairs, from_words
from fedvi.privacy.sampling import Source, most_rows
from fedvi.pytree import precision

T = TypeVar("T")

CANARY = 0
"""The row that is there or not."""

STILL = 1e-30
"""A learning rate or a damping with which nothing moves."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """An algorithm under audit.

    source: makes the source of randomness of one update; in real use `System`.
    family: of q. rows: as many are declared, and there.
    """

    algorithm: Algorithm
    source: Callable[[], Source]
    model: Model = dataclasses.field(default_factory=LogisticRegression)
    family: type[GaussianFamily] = Gaussian
    rows: int = 40
    dim: int = 4

    @functools.cached_property
    def event(self) -> Event:
        """What the algorithm says that one update does."""
        found = self.algorithm.event(self.prior, self.rows)
        if not isinstance(found, Event):
            raise InputError(
                f"Expected a private mechanism to audit, got {type(self.algorithm.solver.mechanism).__name__}."
            )
        return found

    @property
    def whole_client(self) -> bool:
        """Whether the unit of privacy is the client, not a row."""
        return self.algorithm.protection.unit == CLIENT

    @functools.cached_property
    def lattice(self) -> Lattice:
        """The lattice that the algorithm says that it releases on."""
        _ = self.event  # or refuse
        found = self.algorithm.lattice(self.public, self.rows)
        assert found is not None
        return found

    @property
    def clip_norm(self) -> float:
        """How far one unit of privacy may move what has noise."""
        return self.algorithm.protection.sensitivity(self.algorithm.row_scale(self.public, self.rows))

    @functools.cached_property
    def prior(self) -> GaussianFamily:
        """A standard normal."""
        return self.family.standard(self.dim)

    @functools.cached_property
    def q(self) -> Any:
        """What the server sends: a posterior away from the prior, or a question about it."""
        if self.algorithm.asks:
            return self.question_at(with_fields(self._first_question.q, natural_mean=jnp.full(self.dim, 0.8)))
        return self.state.factor.posterior(self.prior)

    @functools.cached_property
    def far_q(self) -> Any:
        """What a hostile server might send: means that are huge, and cancel for rows that are alike."""
        means = jnp.asarray(np.where(np.arange(self.dim) % 2, -1e4, 1e4), precision())
        family = type(self._first_question.q) if self.algorithm.asks else self.family
        far = with_fields(family.standard(self.dim, 0.01), natural_mean=means / 0.01)
        return self.question_at(far) if self.algorithm.asks else far

    def sent_after(self, release: Release, sent: Any) -> Any:
        """Return what the server sends next: the posterior, or a question that is not about what the last one was."""
        if self.algorithm.asks:
            return dataclasses.replace(sent, moments=1 - sent.moments)
        return release.factor.posterior(self.prior)

    @functools.cached_property
    def _first_question(self) -> Any:
        asked = self.algorithm.first_asked(self.model, self.prior)
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), asked.questions)

    def question_at(self, q: GaussianFamily) -> Any:
        """Return a question about slope and curvature at q, with something in every part of the answer."""
        numbers = {"slope_weight": 1.0, "curvature_weight": 0.5, "extra_weight": 0.3, "reach": 2.0, "moments": 0.0}
        values = {name: jnp.asarray(value, precision()) for name, value in numbers.items()}
        return dataclasses.replace(self._first_question, q=q, **values)

    @functools.cached_property
    def public(self) -> Public:
        """Three clients like this one."""
        return Public(self.prior, jnp.asarray(3.0), jnp.asarray(3.0 * self.rows))

    @functools.cached_property
    def state(self) -> ClientState:
        """The client's state before the audited update. Its factor is not 1: the KL part has a gradient of its own."""
        new = init_client(self.algorithm, self.prior)
        if self.algorithm.asks:
            return new
        mean, spread = jnp.full_like(new.factor.natural_mean, 0.8), 0.5 * self.prior.precision
        return dataclasses.replace(new, factor=with_fields(new.factor, natural_mean=mean, precision=spread))

    def table(self, canary: np.ndarray, target: float = 1.0, others: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """Return rows of which the first is the canary; others: their size. Rows of size 0 say nothing."""
        rng = np.random.default_rng(0)
        x, y = others * rng.normal(size=(self.rows, self.dim)), np.sign(rng.normal(size=self.rows))
        x[CANARY], y[CANARY] = canary, target
        return x, y

    def site(self, x: np.ndarray, y: np.ndarray, bound: float = DEFAULT_FEATURE_BOUND) -> Rows:
        """Return rows as a site has them: on their grid, in a buffer whose size is public."""
        with np.errstate(over="ignore"):
            features, targets = (np.asarray(part, precision()) for part in (x, y))
            return Rows.of(on_row_grid(features, bound)[0], targets, bound, most_rows(self.rows))

    def draw(self, rows: int | None = None) -> Draws:
        """Return the randomness of one update, drawn as a client draws it."""
        count = self.rows if rows is None else rows
        return draw(self.algorithm, self.model, self.public, count, self.rows, self.source())

    def draws(self, updates: int) -> Draws:
        """Return the randomness of so many updates, stacked."""
        return jax.tree.map(lambda *leaves: np.stack(leaves), *(self.draw() for _ in range(updates)))

    def update(
        self, site: Rows, draws: Draws, state: ClientState, q: GaussianFamily, *, present: bool = True
    ) -> tuple[ClientState, Release, np.ndarray]:
        """Make one update, as a client would; return its new state, its release, and all that has noise.

        Not `present`: the client sends noise alone, the neighbour if all of the client is protected.
        """
        damping = self.algorithm.damping if present else STILL
        new, release, seen = self._compiled_update(site, draws, state, q, damping)
        return new, release, from_words(seen)

    def observe(self, site: Rows, draws: Draws, q: GaussianFamily | None = None, *, present: bool = True) -> np.ndarray:
        """Return all that has noise in many updates, in units of the grid: (updates, steps, numbers).

        The optimiser does not move: all steps of all updates look at the same q.
        """
        damping = self.algorithm.damping if present else STILL
        seen = self._compiled_look(site, draws, self.q if q is None else q, damping)
        return from_words(seen) / self.lattice.grid

    def look(
        self, x: np.ndarray, y: np.ndarray, draws: Draws, q: GaussianFamily | None = None, *, present: bool = True
    ) -> np.ndarray:
        """Observe a table, or its neighbour that lacks the canary: the row, or all of the client."""
        if present or self.whole_client:
            return self.observe(self.site(x, y), draws, q, present=present)
        return self.observe(self.site(x[1:], y[1:]), without_canary(draws), q)

    @functools.cached_property
    def _compiled_update(self) -> Callable[..., tuple[ClientState, Release, Array]]:
        _ = self.public  # made here, not while compiling
        return jax.jit(functools.partial(self._step, self.algorithm))

    @functools.cached_property
    def _compiled_look(self) -> Callable[..., Array]:
        still = self.algorithm if self.whole_client else with_fields(self.algorithm, learning_rate=STILL)
        _, state = self.public, self.state  # made here, not while compiling

        def all_updates(site: Rows, draws: Draws, q: GaussianFamily, damping: float) -> Array:
            return jax.lax.map(lambda one: self._step(still, site, one, state, q, damping)[2], draws)

        return jax.jit(all_updates)

    def _step(
        self, algorithm: Algorithm, site: Rows, draws: Draws, state: ClientState, q: GaussianFamily, damping: float
    ) -> tuple[ClientState, Release, Array]:
        return update(with_fields(algorithm, damping=damping), self.model, self.public, q, state, site, draws)


def with_fields(tree: T, **values: object) -> T:
    """Return a pytree with other values in all fields of these names, however deep; names that it lacks do nothing."""
    return jax.tree_util.tree_map_with_path(lambda path, leaf: values.get(getattr(path[-1], "name", ""), leaf), tree)


def everybody(draws: Draws, rows: int) -> Draws:
    """Return the draws with rows 0, 1, ... in every batch, as many as there is room for."""
    index = np.broadcast_to(np.arange(np.shape(draws.rows)[-1], dtype=np.int32), np.shape(draws.rows))
    return with_fields(draws, rows=np.where(index < rows, index, 0), mask=index < rows)


def without_canary(draws: Draws) -> Draws:
    """Return the draws of the neighbour that lacks the canary, whose other rows are numbered from 0."""
    rows, mask = np.asarray(draws.rows), np.asarray(draws.mask)
    kept = mask & (rows != CANARY)
    order = np.argsort(~kept, axis=-1, kind="stable")
    rows, mask = np.take_along_axis(rows, order, axis=-1), np.take_along_axis(kept, order, axis=-1)
    return with_fields(draws, rows=np.where(mask, rows - 1, 0), mask=mask)


def with_noise(draws: Draws, noise: np.ndarray) -> Draws:
    """Return the same draws with other whole-number noise, of the shape that `noise_of` gives."""
    if draws.release_noise.shape[-2]:
        return with_fields(draws, release_noise=as_pairs(noise[..., 0, :]))
    return with_fields(draws, privacy_noise=as_pairs(noise))


def noise_of(draws: Draws) -> np.ndarray:
    """Return the whole-number noise in draws: (..., steps, numbers)."""
    of_client = bool(draws.release_noise.shape[-2])
    pairs = np.ascontiguousarray(draws.release_noise if of_client else draws.privacy_noise)
    noise = pairs.view(np.int64)[..., 0]
    return noise[..., None, :] if of_client else noise


def silent(draws: Draws) -> Draws:
    """Return the same draws without noise."""
    return with_noise(draws, np.zeros_like(noise_of(draws)))


def some(draws: Draws, which: slice) -> Draws:
    """Return the draws of some of the updates."""
    return jax.tree.map(lambda leaf: leaf[which], draws)

"""What is audited: an algorithm on the code path that real updates take, with rows that the auditor chooses.

The auditor is the adversary of differential privacy: it picks all rows, a canary among them, and the q that the server
sends, and it sees everything that is private by its noise: every gradient of an update, every slope and curvature, or,
with client-level privacy, every release. It sees gradients through an optimiser that records what it is given and moves
nothing; the rest is `draw` and `client_step` as sites and simulations call them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from fedvi.data import Site
from fedvi.errors import InputError
from fedvi.gaussian import Factor, Gaussian, GaussianFamily
from fedvi.local import (
    Algorithm,
    AveragedQuadratics,
    ClientState,
    Draws,
    GradientSteps,
    Public,
    client_step,
    draw,
    init_client,
)
from fedvi.models import LogisticRegression, Model
from fedvi.privacy.events import CLIENT, to_json
from fedvi.privacy.mechanism import GaussianMechanism

CANARY = 0
"""The row that is there or not."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """An algorithm under audit.

    generator: makes the randomness of one update; in real use `secure_generator`.
    family: of q.
    """

    algorithm: Algorithm
    generator: Callable[[], np.random.Generator]
    model: Model = dataclasses.field(default_factory=LogisticRegression)
    family: type[GaussianFamily] = Gaussian
    rows: int = 40
    dim: int = 4

    @property
    def event(self) -> Hashable:
        """What the algorithm says that one update does."""
        return self.algorithm.event(self.rows)

    @property
    def whole_client(self) -> bool:
        """Whether the unit of privacy is the client, not a row."""
        return self.algorithm.unit == CLIENT

    @property
    def mechanism(self) -> GaussianMechanism:
        """The mechanism that protects rows."""
        found = self.algorithm.solver.mechanism
        if not isinstance(found, GaussianMechanism):
            raise InputError(f"Expected a Gaussian mechanism to audit, got {type(found).__name__}.")
        return found

    @property
    def claim(self) -> dict[str, Any]:
        """The event as plain values: what is audited against."""
        if not self.whole_client:
            _ = self.mechanism
        return {"sampling_rate": 1.0, **to_json(self.event)}

    @property
    def sensitivity(self) -> float:
        """How far one unit of privacy may move what is observed."""
        if self.algorithm.client_level is not None:
            return float(self.algorithm.client_level.clip_norm)
        if self.mechanism.clips == "loss":
            return float(self.mechanism.clip_norm)
        problem = self.algorithm.problem(self.public, self.q, self.factor, jnp.int32(self.rows))
        scale = self.rows / self.mechanism.batch_size(self.rows)
        return float(self.mechanism.clip_norm) * scale * float(problem.likelihood_scale)

    @property
    def prior(self) -> GaussianFamily:
        """A standard normal."""
        return self.family.standard(self.dim)

    @property
    def factor(self) -> Factor:
        """The factor that the client released before: not 1, so that the KL part has a gradient of its own."""
        unit: Any = self.algorithm.unit_factor(self.prior)
        half = 0.5 * self.prior.precision
        return dataclasses.replace(unit, natural_mean=jnp.full(self.dim, 0.8), precision=half)

    @property
    def q(self) -> GaussianFamily:
        """The posterior that the server sends, away from the prior."""
        q: GaussianFamily = self.factor.posterior(self.prior)
        return q

    @property
    def public(self) -> Public:
        """Three clients like this one."""
        return Public(self.prior, jnp.asarray(3.0), jnp.asarray(3.0 * self.rows))

    def site(self, canary: np.ndarray, target: float = 1.0, others: float = 1.0) -> Site:
        """Return rows of which one is the canary; others: their size. Rows of size 0 say nothing."""
        rng = np.random.default_rng(0)
        x, y = others * rng.normal(size=(self.rows, self.dim)), np.sign(rng.normal(size=self.rows))
        x[CANARY], y[CANARY] = canary, target
        return Site(jnp.asarray(x, float), jnp.asarray(y, float), jnp.int32(0), jnp.int32(self.rows))

    def draws(self, updates: int) -> Draws:
        """Return the randomness of so many updates, drawn as a client draws it, stacked."""
        drawn = [draw(self.algorithm, self.model, self.prior, self.rows, self.generator()) for _ in range(updates)]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *drawn)

    def observe(self, site: Site, draws: Draws, *, present: bool = True) -> np.ndarray:
        """Return all that is private in many updates, in units of the sensitivity: (updates, steps, numbers).

        Not `present` is the neighbour: the canary's row is in no batch, or the client sends noise alone.
        """
        if not present and not self.whole_client:
            draws = without_canary(draws)
        damping = 1e-30 if self.whole_client and not present else self.algorithm.damping
        return np.asarray(self._compiled(site, draws, damping), float) / self.sensitivity

    @functools.cached_property
    def _compiled(self) -> Callable[[Site, Draws, Any], jax.Array]:
        look = self._release if self.whole_client else self._gradients

        def all_updates(site: Site, draws: Draws, damping: Any) -> jax.Array:
            return jax.lax.map(lambda one: look(site, one, damping), draws)

        return jax.jit(all_updates)

    def _gradients(self, site: Site, draws: Draws, damping: Any) -> jax.Array:
        solver = self.algorithm.solver
        if isinstance(solver, AveragedQuadratics) and solver.steps == 1:
            new, _ = self._step(site, draws, damping=damping)
            return ravel_pytree(new.solver.quadratic)[0][None]  # the average of the first release is that release
        if not isinstance(solver, GradientSteps):
            raise InputError(
                f"Expected GradientSteps, or AveragedQuadratics with one step, to audit, got {type(solver).__name__}."
            )
        recording = dataclasses.replace(solver, optimizer=_Recorder(solver.steps))
        new, _ = self._step(site, draws, solver=recording, damping=damping)
        return new.solver[1]

    def _release(self, site: Site, draws: Draws, damping: Any) -> jax.Array:
        new, _ = self._step(site, draws, repair=False, damping=damping)
        return ravel_pytree(new.factor / self.factor)[0][None]

    def _step(self, site: Site, draws: Draws, **changes: Any) -> tuple[ClientState, Any]:
        algorithm: Any = dataclasses.replace(self.algorithm, **changes)  # type: ignore[type-var]
        state = dataclasses.replace(init_client(algorithm, self.prior), factor=self.factor)
        return client_step(algorithm, self.model, self.public, self.q, state, site, draws)


def without_canary(draws: Draws) -> Draws:
    """Return the draws of the neighbour that lacks the canary's row: later rows of a batch move up by one place."""
    rows, mask = np.asarray(draws.rows), np.asarray(draws.mask)
    kept = mask & (rows != CANARY)
    order = np.argsort(~kept, axis=-1, kind="stable")
    rows, mask = np.take_along_axis(rows, order, axis=-1), np.take_along_axis(kept, order, axis=-1)
    filler = np.where(rows[..., :1] == CANARY, 1, rows[..., :1])
    return dataclasses.replace(draws, rows=np.where(mask, rows, filler), mask=mask)  # type: ignore[arg-type]


def with_canary(draws: Draws) -> Draws:
    """Return draws that have the canary's row in every batch, in the first place."""
    without = without_canary(draws)
    rows, mask = np.array(without.rows), np.array(without.mask)
    first = np.zeros_like(rows[..., :1])
    rows = np.concatenate([first + CANARY, rows[..., :-1]], axis=-1)
    mask = np.concatenate([first == 0, mask[..., :-1]], axis=-1)
    return dataclasses.replace(draws, rows=rows, mask=mask)  # type: ignore[arg-type]


def silent(draws: Draws) -> Draws:
    """Return the same draws without privacy noise."""
    none = jnp.zeros_like(draws.privacy_noise), jnp.zeros_like(draws.release_noise)
    return dataclasses.replace(draws, privacy_noise=none[0], release_noise=none[1])


def some(draws: Draws, which: slice) -> Draws:
    """Return the draws of some of the updates."""
    return jax.tree.map(lambda leaf: leaf[which], draws)


@dataclasses.dataclass(frozen=True)
class _Recorder:
    """An optimiser that writes down every gradient and never moves."""

    steps: int

    def __call__(self, learning_rate: Any) -> optax.GradientTransformation:  # noqa: ARG002
        """Return the transformation; its state is (step, gradients)."""

        def init(params: Any) -> Any:
            flat, _ = ravel_pytree(params)
            return jnp.zeros((), jnp.int32), jnp.zeros((self.steps, flat.size), flat.dtype)

        def update(gradient: Any, state: Any, params: Any = None) -> Any:  # noqa: ARG001
            step, record = state
            flat, _ = ravel_pytree(gradient)
            return jax.tree.map(jnp.zeros_like, gradient), (step + 1, record.at[step].set(flat))

        return optax.GradientTransformation(init, update)

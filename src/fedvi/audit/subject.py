"""What is audited: an algorithm on the code path that real updates take, with rows that the auditor chooses.

The auditor is the adversary of differential privacy: it picks all rows, a canary among them, and sees everything that
is private by its noise: every gradient of an update, or, with client-level privacy, every release. It sees gradients
through an optimiser that records what it is given and moves nothing; the rest is `draw` and `client_step` as sites and
simulations call them.
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
from fedvi.gaussian import Gaussian, GaussianFamily
from fedvi.local import Algorithm, Draws, GradientSteps, Public, client_step, draw, init_client
from fedvi.models import LogisticRegression, Model
from fedvi.privacy.events import CLIENT
from fedvi.privacy.mechanism import GaussianMechanism

CANARY = 0
"""The row that is there or not."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """An algorithm under audit.

    generator: makes the randomness of one update; in real use `secure_generator`.
    """

    algorithm: Algorithm
    generator: Callable[[], np.random.Generator]
    rows: int = 40
    dim: int = 4
    model: Model = dataclasses.field(default_factory=LogisticRegression)

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
    def noise_multiplier(self) -> float:
        """Standard deviation of the noise that the event claims, in units of the sensitivity."""
        protection = self.algorithm.client_level or self.mechanism
        return float(protection.noise_multiplier)

    @property
    def sensitivity(self) -> float:
        """How far the event says that one unit of privacy may move what is observed."""
        if self.algorithm.client_level is not None:
            return float(self.algorithm.client_level.clip_norm)
        scale = self.rows / self.mechanism.batch_size(self.rows)
        return float(self.mechanism.clip_norm) * (scale if self.mechanism.clips == "likelihood" else 1.0)

    @functools.cached_property
    def prior(self) -> GaussianFamily:
        """A standard normal."""
        return Gaussian.standard(self.dim)

    @functools.cached_property
    def public(self) -> Public:
        """One client."""
        return Public(self.prior, jnp.asarray(1.0), jnp.asarray(float(self.rows)))

    def present(self, canary: float) -> Site:
        """Return rows of which one is the canary, along the first feature; the others do not touch that feature."""
        x = np.random.default_rng(0).normal(size=(self.rows, self.dim))
        x[:, 0] = 0
        x[CANARY] = 0
        x[CANARY, 0] = canary
        y = np.where(np.arange(self.rows) % 2, 1.0, -1.0)
        return Site(jnp.asarray(x, float), jnp.asarray(y, float), jnp.int32(0), jnp.int32(self.rows))

    def absent(self) -> Site:
        """Return the neighbour: the canary's row, or every row, is zero. Rows of zeros have no gradient at all."""
        site = self.present(0.0)
        return dataclasses.replace(site, x=jnp.zeros_like(site.x)) if self.whole_client else site

    def draws(self, updates: int) -> Draws:
        """Return the randomness of so many updates, drawn as a client draws it, stacked."""
        drawn = [draw(self.algorithm, self.model, self.prior, self.rows, self.generator()) for _ in range(updates)]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *drawn)

    def observe(self, site: Site, draws: Draws) -> np.ndarray:
        """Return all that is private in many updates, in units of the sensitivity: (updates, steps, numbers).

        Of gradients the KL part is left out: at the prior, where these updates stay, it is exactly zero.
        """
        return np.asarray(self._compiled(site, draws), float) / self.sensitivity

    @functools.cached_property
    def _compiled(self) -> Callable[[Site, Draws], jax.Array]:
        look = self._release if self.whole_client else self._gradients
        return jax.jit(lambda site, many: jax.lax.map(lambda one: look(site, one), many, batch_size=64))

    def _gradients(self, site: Site, draws: Draws) -> jax.Array:
        solver = self.algorithm.solver
        if not isinstance(solver, GradientSteps):
            raise InputError(f"Expected GradientSteps to audit, got {type(solver).__name__}.")
        recording = dataclasses.replace(solver, optimizer=_Recorder(solver.steps))
        watched: Any = dataclasses.replace(self.algorithm, solver=recording)  # type: ignore[type-var]
        state = init_client(watched, self.prior)
        new, _ = client_step(watched, self.model, self.public, self.prior, state, site, draws)
        return new.solver[1]

    def _release(self, site: Site, draws: Draws) -> jax.Array:
        plain: Any = dataclasses.replace(self.algorithm, repair=False)  # type: ignore[type-var]
        state = init_client(plain, self.prior)
        _, release = client_step(plain, self.model, self.public, self.prior, state, site, draws)
        return ravel_pytree(release.factor)[0][None]


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

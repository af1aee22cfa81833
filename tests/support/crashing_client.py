"""A client that makes private updates until it is killed. Started by test_killed.py, many times from one process.

Each line that it writes is a release that has left the client: the number of updates that its ledger had admitted.
"""

from __future__ import annotations

import dp_accounting  # noqa: F401 - takes a second, once for all clients
import jax.numpy as jnp
import optax  # noqa: F401 - as long

from federations import logistic_tables
from fedvi import PVI, Budget, Gaussian, LogisticRegression
from fedvi.errors import BudgetClosed
from fedvi.inference import GradientSteps, PrivateClient, Public
from fedvi.inference.update import checked_update, draw
from fedvi.privacy import FullBatchGaussian
from fedvi.privacy.sampling import UPDATE, Seeded
from victims import fork_for_every_line, say

DIM = 2
BUDGET = Budget(0.3, 1e-3)
ALGORITHM = PVI(GradientSteps(2, 0.1, FullBatchGaussian(150.0, 1.0)))


def warm_up(client: PrivateClient, prior: Gaussian) -> None:
    """Compile an update, without noise of real use and without releasing anything."""
    draws = draw(ALGORITHM, client._model, client._public, 30, 30, Seeded(0, UPDATE))
    checked_update(ALGORITHM, client._model, client._public, prior, client.state, client._rows.rows, draws)


def work(ledger: str, seed: str) -> None:
    """Update until the budget is closed, releasing every result."""
    table = logistic_tables([30], DIM, int(seed))["site 0"]
    prior = Gaussian.standard(DIM)
    public = Public(prior, jnp.asarray(1.0), jnp.asarray(30.0))
    with PrivateClient.open(ledger, table, LogisticRegression(), ALGORITHM, public, BUDGET) as client:
        warm_up(client, prior)
        say("ready")
        try:
            while True:
                release = client.update(prior)
                say(int(release.sequence), float(release.factor.natural_mean[0]))
        except BudgetClosed:
            say("closed")


if __name__ == "__main__":
    fork_for_every_line(work)

"""A client that makes private updates until it is killed. Started by test_crashes.py, many times from one process.

Each line that it writes is a release that has left the client: the number of updates that its ledger had admitted.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings

import dp_accounting  # noqa: F401 - takes a second, once for all clients
import jax.numpy as jnp
import numpy as np

from federations import logistic_tables
from fedvi import PVI, Budget, FullBatchGaussian, Gaussian, GradientSteps, LogisticRegression, PrivateClient
from fedvi.errors import BudgetClosed
from fedvi.local import Public, draw, update

DIM = 2
BUDGET = Budget(0.3, 1e-3)
ALGORITHM = PVI(GradientSteps(2, 0.1, FullBatchGaussian(150.0, 1.0)))


def warm_up(client: PrivateClient, prior: Gaussian) -> None:
    """Compile an update, without noise of real use and without releasing anything."""
    draws = draw(ALGORITHM, client._model, prior, 30, np.random.default_rng(0))
    update(ALGORITHM, client._model, client._public, prior, client.state, client._site, draws)


def work(ledger: str, seed: int) -> None:
    """Update until the budget is closed, releasing every result."""
    table = logistic_tables([30], DIM, seed)["site 0"]
    prior = Gaussian.standard(DIM)
    public = Public(prior, jnp.asarray(1.0), jnp.asarray(30.0))
    with PrivateClient.open(ledger, table, LogisticRegression(), ALGORITHM, public, BUDGET) as client:
        warm_up(client, prior)
        os.write(1, b"ready\n")
        try:
            while True:
                release = client.update(prior)
                os.write(1, f"{int(release.sequence)} {float(release.factor.natural_mean[0])}\n".encode())
        except BudgetClosed:
            os.write(1, b"closed\n")


def main() -> None:
    """Fork a client for every line on standard input, and report how each ended; JAX is imported once only."""
    warnings.simplefilter("ignore")  # forking is safe here: nothing has started a thread yet
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            ended = 1
            try:
                ledger, seed = line.split()
                work(ledger, int(seed))
                ended = 0
            finally:
                os._exit(ended)
        os.write(1, f"pid {child}\n".encode())
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        os.write(1, b"killed\n" if killed else f"ended {os.waitstatus_to_exitcode(status)}\n".encode())


if __name__ == "__main__":
    main()

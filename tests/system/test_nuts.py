"""Without privacy, fits agree with NUTS of NumPyro, on the example table and on `fair` of statsmodels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedvi import fit, infer_schema
from fedvi.compiling import jax, jnp
from fedvi.fitting import Fitted
from fedvi.tables.encode import encode

NUMBERS = ("age",)
PATIENTS = Path(__file__).parents[2] / "examples" / "patients.csv"


def sampled(fitted: Fitted, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means and standard deviations of the weights, by NUTS, with the fit's prior."""
    numpyro = pytest.importorskip("numpyro")
    spread, linear = jnp.asarray(fitted.prior.std), y.dtype.kind == "f"

    def model(x: Any, y: Any) -> None:
        w = numpyro.sample("w", numpyro.distributions.Normal(0.0, spread).to_event(1))
        if linear:
            sd = numpyro.sample("sd", numpyro.distributions.LogNormal(0.0, 0.5))
            numpyro.sample("y", numpyro.distributions.Normal(x @ w, sd), obs=y)
        else:
            numpyro.sample("y", numpyro.distributions.Bernoulli(logits=x @ w), obs=y)

    steps = {"num_warmup": 600, "num_samples": 3000, "progress_bar": False}
    chain = numpyro.infer.MCMC(numpyro.infer.NUTS(model, dense_mass=True), **steps)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        chain.run(jax.random.key(0), jnp.asarray(x, float), jnp.asarray(y, float))
        draws = np.asarray(chain.get_samples()["w"])
    return draws.mean(axis=0), draws.std(axis=0)


def table_of(name: str) -> Any:
    if name == "patients":
        return PATIENTS
    fair = pytest.importorskip("statsmodels.datasets.fair").load_pandas().data
    columns = {
        key: np.asarray(fair[key], float) for key in fair if key not in ("affairs", "occupation", "occupation_husb")
    }
    columns |= {key: np.asarray(fair[key]).astype(int).astype(str) for key in ("occupation", "occupation_husb")}
    site = np.array(["a", "b", "c"])[np.arange(len(fair)) % 3]
    return {**columns, "affair": np.where(np.asarray(fair["affairs"]) > 0, "yes", "no"), "hospital": site}


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("name", "target"),
    [("patients", "readmitted"), ("patients", "age"), ("fair", "affair"), ("fair", "age")],
)
def test_fits_without_privacy_agree_with_sampling(name: str, target: str) -> None:
    table = table_of(name)
    schema = infer_schema(table, target, ignore=["hospital"]).schema
    fitted = fit(schema, table, site_column="hospital", epsilon=None, progress=False)
    x, y = encode(schema, table).rows
    mean, std = sampled(fitted, x, y if target in NUMBERS else y > 0)
    moved = np.abs(fitted.posterior.mean - mean) / std
    ratio = np.asarray(fitted.posterior.std) / std
    print(f"{name} {target}: means within {moved.max():.3f} sd, sds {ratio.min():.3f} to {ratio.max():.3f} times those")
    assert fitted.converged
    assert moved.max() < 0.15
    assert np.abs(ratio - 1).max() < 0.1

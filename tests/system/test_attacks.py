"""Attacks against the bytes that a site sends, and those that the command `fedvi audit` makes."""

from __future__ import annotations

import dataclasses
import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedvi.audit import Subject
from fedvi.audit.subject import everybody, silent
from fedvi.federation import wire
from fedvi.federation.description import Description
from fedvi.federation.wire import Answer, Request
from fedvi.numerics import widen
from fedvi.privacy import Budget, lattice
from fedvi.privacy.lattice import Lattice
from fedvi.privacy.ledger.ledger import read
from fedvi.privacy.sampling import System
from fedvi.tables import BinaryTarget, Number, Schema
from recognition import CHANCE, RUNS, possible, right, says_present
from small_federation import site_of

ROWS, FEATURES = 1000, 57

SCHEMA = Schema(tuple(Number(f"x{k}", -4, 4, 0, 1) for k in range(FEATURES)), BinaryTarget("y", ("no", "yes")))
DESCRIPTION = Description("trial", ("north",), SCHEMA, rows=ROWS, updates=2, identity="attack")
BUDGET = Budget(1.0, 1e-5)


Messages = Callable[[bool], tuple[np.ndarray, float]]


def table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = np.concatenate([np.ones((ROWS, 1)), np.clip(rng.normal(size=(ROWS, FEATURES)), -4, 4)], axis=1)
    y = np.where(rng.random(ROWS) < 1 / (1 + np.exp(-x[:, 1])), 1, -1)
    return x.astype(np.float32), y.astype(np.float32)


def in_floating_point(size: float) -> Callable[..., Any]:
    """Return the old way of adding noise: normals in single precision, added to a sum in double precision."""

    def released(total: Any, noise: Any, grid: Any) -> Any:
        normals = (widen(jax.lax.bitcast_convert_type(noise, jnp.int64)) / size).astype(jnp.float32)
        return total + size * widen(grid) * widen(normals)

    return released


def without_noise(total: Any, noise: Any, grid: Any) -> Any:  # noqa: ARG001
    return total


@functools.cache
def subject() -> Subject:
    """Return the site's algorithm, to compute sums without noise as the adversary would."""
    algorithm = DESCRIPTION.spec.algorithm.calibrated(DESCRIPTION.spec.prior, BUDGET, ROWS, 2)
    return Subject(algorithm, System, DESCRIPTION.spec.model, type(DESCRIPTION.spec.prior), ROWS, SCHEMA.dim)


def sums_of_answers(monkeypatch: pytest.MonkeyPatch) -> dict[bool, np.ndarray]:
    """Return the answer to the first question in double precision, with and without the first row."""
    x, y = table()
    asked: Any = DESCRIPTION.form
    sums = {}
    with monkeypatch.context() as patched:
        patched.setattr(lattice, "released", without_noise)
        fresh = dataclasses.replace(subject())
        for present in (True, False):
            rows = (x, y) if present else (x[1:], y[1:])
            draws = everybody(silent(fresh.draws(1)), len(rows[0]))
            site = fresh.site(*rows, bound=SCHEMA.feature_bound)
            sums[present] = fresh.observe(site, draws, asked)[0, 0] * fresh.lattice.grid
    return sums


@pytest.fixture
def messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Messages:
    """Give a function that returns the answer in a new site's first message, and the noise in it."""
    count = iter(range(10**6))
    honest = wire.encode(Answer(DESCRIPTION.digest, wire.QUESTION, 0, 0, arrays=wire.arrays_of(DESCRIPTION.form)))

    def message(present: bool) -> tuple[np.ndarray, float]:
        x, y = table()
        rows = (x, y) if present else (x[1:], y[1:])
        folder = tmp_path / str(next(count))
        folder.mkdir()
        monkeypatch.setenv("FEDVI_STATE_DIR", str(folder))  # a machine of its own
        ledger = folder / "ledger"
        with site_of(folder / "site.db", DESCRIPTION, rows, BUDGET, ledger, (), ROWS) as client:
            client.request()
            client.receive(honest)
            data = client.request()
        assert data is not None
        (event,) = read(ledger).charged
        return wire.decode(data, Request, 1 << 20).arrays["0"][0], event.noise_multiplier

    return message


def over_the_wire(messages: Messages, sums: dict[bool, np.ndarray], runs: int) -> float:
    guesses: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(runs):
        for present, said in guesses.items():
            released, noise = messages(present)
            lattice = Lattice.of(1.0, noise, len(released), -(-11 * ROWS // 10))
            std = lattice.size * lattice.grid
            impossible = {world: int(np.sum(~possible(released, total, std))) for world, total in sums.items()}
            said.append(says_present(impossible[True], impossible[False]))
    return right(guesses)


def test_a_row_is_not_recognised_in_the_bytes_that_a_site_sends(
    messages: Messages, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert over_the_wire(messages, sums_of_answers(monkeypatch), RUNS) <= CHANCE


def test_the_attack_recognises_a_row_where_noise_is_added_in_floating_point(
    messages: Messages, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums, (released, noise) = sums_of_answers(monkeypatch), messages(True)
    size = Lattice.of(1.0, noise, len(released), -(-11 * ROWS // 10)).size
    with monkeypatch.context() as patched:
        patched.setattr(lattice, "released", in_floating_point(size))
        jax.clear_caches()  # compiled code has the new way in it
        assert over_the_wire(messages, sums, 20) > 0.95
    jax.clear_caches()


def test_audit_prints_claims_and_draws_the_picture(tmp_path: Path) -> None:
    options = ("--noise-multiplier", "2", "--steps", "5", "--runs", "2000", "--seed", "1")
    command = [sys.executable, "-m", "fedvi", "audit", "--unit", "client", *options, "--out", "audit.png"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "No claim was contradicted" in ran.stdout
    assert "mu (Gaussian DP)" in ran.stdout
    assert (tmp_path / "audit.png").stat().st_size > 20_000

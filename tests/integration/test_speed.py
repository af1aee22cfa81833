"""What makes simulations fast: loops compiled whole, code shared and kept, memory laid out once."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federations import logistic_tables
from fedvi import PVI, LogisticRegression, compiling, simulate
from fedvi.compiling import EXTRA, LIMIT, OPTION, cache_compilations, cache_directory, compile_loops_whole
from fedvi.experiments import RunSpec, Variant
from fedvi.experiments.local_pool import arrange_jobs
from fedvi.inference import GradientSteps
from fedvi.inference.rows import check_tables, lay_out, roomy
from fedvi.numerics import on_row_grid, row_lengths
from fedvi.privacy import PoissonGaussian
from fedvi.privacy.sampling import UPDATE, Seeded
from fedvi.simulation.runs import play_blocks

# Compilation


def test_flags_for_other_purposes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = f"{OPTION}={LIMIT}"
    for before, after in {
        "": EXTRA + ours,
        "--xla_dump_to=x": f"--xla_dump_to=x {EXTRA}{ours}",
        f"{EXTRA}a=1 --xla_dump_to=x": f"{EXTRA}a=1,{ours} --xla_dump_to=x",
        "some/file": "some/file",
        '--xla_dump_to="x y"': '--xla_dump_to="x y"',
        f"{EXTRA}{OPTION}=7": f"{EXTRA}{OPTION}=7",
    }.items():
        monkeypatch.setenv("XLA_FLAGS", before)
        compile_loops_whole()
        assert os.environ["XLA_FLAGS"] == after
        compile_loops_whole()
        assert os.environ["XLA_FLAGS"] == after


def in_a_new_process(code: str, **environment: str) -> str:
    """Return what the code prints where nothing was imported yet, and no flags were set."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("XLA_", "JAX_"))}
    ran = subprocess.run([sys.executable, "-c", code], env={**own, **environment}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


LOOP = """
import fedvi, jax, jax.numpy as jnp
step = lambda k, w: jnp.tanh(jnp.ones((40, 40)) @ w)
compiled = jax.jit(lambda w: jax.lax.fori_loop(0, 9, step, w)).lower(jnp.ones(40)).compile()
print("xla_cpu_small_call" in compiled.as_text())
"""


def test_xla_compiles_loops_whole_when_fedvi_was_imported() -> None:
    assert in_a_new_process(LOOP) == "True"
    assert in_a_new_process(LOOP.replace("import fedvi, jax,", "import jax,")) == "False"


def test_compiled_code_is_kept_for_the_next_process(tmp_path: Path) -> None:
    code = """
from fedvi.compiling import cache_compilations, cache_directory
cache_compilations()
from jax import monitoring
found = []
monitoring.register_event_listener(lambda event, **_: found.append(event))
import numpy as np
from fedvi import LogisticRegression, PVI, simulate
rng = np.random.default_rng(0)
simulate([(rng.normal(size=(50, 3)), np.sign(rng.normal(size=50)))], LogisticRegression(), seed=0, communications=2)
print(found.count("/jax/compilation_cache/cache_hits"), len(list(cache_directory().iterdir())) > 0)
"""
    first = in_a_new_process(code, XDG_CACHE_HOME=str(tmp_path)).split()
    second = in_a_new_process(code, XDG_CACHE_HOME=str(tmp_path)).split()
    assert first == ["0", "True"]
    assert int(second[0]) > 0


def test_the_cache_of_compiled_code_can_be_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert str(cache_directory()).startswith(str(tmp_path / "fedvi"))
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert str(cache_directory()).startswith(str(tmp_path / ".cache" / "fedvi"))


def test_where_nothing_can_be_written_nothing_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    assert cache_directory() is None
    cache_compilations()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
    assert not list(tmp_path.iterdir())


def test_federations_of_about_the_same_size_share_compiled_code() -> None:
    algorithm = PVI(GradientSteps(2, 0.1, PoissonGaussian(fraction=0.1, minimum=5)))

    def run(sizes: list[int], seed: int, dim: int) -> int:
        simulate(logistic_tables(sizes, dim), LogisticRegression(), seed=seed, algorithm=algorithm, communications=3)
        compiled: int = play_blocks._cache_size()  # type: ignore[attr-defined]
        return compiled

    before = run([300, 400, 20], 0, 7)
    assert run([310, 395, 45], 1, 7) == before
    assert run([310, 395, 45], 1, 8) == before + 1


# Memory


@given(st.integers(1, 2**31))
def test_room_is_enough_and_little_more(rows: int) -> None:
    assert rows <= roomy(rows) <= max(rows + 15, rows * 1.25, 16)
    assert roomy(roomy(rows)) == roomy(rows)


@pytest.mark.parametrize("sizes", [[1], [5, 30, 2], [1000]])
def test_rows_of_all_clients_lie_end_to_end_in_one_buffer(sizes: list[int]) -> None:
    tables = check_tables(logistic_tables(sizes, 3), LogisticRegression())
    on_grid = {name: (on_row_grid(x, 64.0)[0], y) for name, (x, y) in tables.items()}
    for chosen, bound in ((tables, 0.0), (on_grid, 64.0)):
        data = lay_out(chosen, bound)
        assert data.x.shape == (roomy(sum(sizes)), 3)
        assert float(data.feature_bound) == bound
        for index, (x, y) in enumerate(chosen.values()):
            own = slice(int(data.offset[index]), int(data.offset[index]) + sizes[index])
            assert np.array_equal(data.x[own], x)
            assert np.array_equal(data.y[own], y)
            assert np.array_equal(data.lengths[own], row_lengths(x) if bound else np.zeros(sizes[index]))
        assert not np.any(np.asarray(data.x)[sum(sizes) :])


def test_data_are_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX gets the buffer itself: what it computes with lies where the rows were put."""
    put, places = jax.device_put, []

    def watched(array: np.ndarray) -> jax.Array:
        there = put(array)
        places.append((array.ctypes.data, there.unsafe_buffer_pointer()))
        return there

    monkeypatch.setattr(compiling.jax, "device_put", watched)
    lay_out(check_tables(logistic_tables([500, 700], 5), LogisticRegression()))
    assert len(places) == 3
    assert all(given == used for given, used in places)


# Randomness


@given(st.integers(0, 2**64 - 1), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_generator_that_is_turned_to_a_stream_gives_its_bits(seed: int, client: int, update: int) -> None:
    words = [np.array(part, np.uint64) for part in ([seed, UPDATE], [0, 0, client, update])]
    truth = np.random.Generator(np.random.Philox(key=words[0], counter=words[1]))
    source = Seeded(0, UPDATE)
    source.words(5)
    source.generator.random(3)
    source.generator.integers(0, 9, dtype=np.uint32)
    used = source.restart(seed, UPDATE, client, update).generator
    for _ in range(2):
        assert np.array_equal(truth.bit_generator.random_raw(7), source.words(7))
        assert np.array_equal(truth.standard_normal(5), used.standard_normal(5))
        assert truth.integers(0, 2**32, dtype=np.uint32) == used.integers(0, 2**32, dtype=np.uint32)


# Runs side by side


@pytest.mark.parametrize("workers", [1, 2, 7])
@pytest.mark.parametrize("cells", [1, 3, 40])
def test_jobs_are_seeds_of_one_cell_in_order(workers: int, cells: int) -> None:
    partition = Variant("A", "A", {}, {})
    methods = [Variant(f"m{number}", "m", {}, {}) for number in range(cells)]
    runs = [RunSpec(partition, method, seed) for method, seed in itertools.product(methods, range(5))]
    jobs = arrange_jobs(runs, workers)
    assert list(itertools.chain(*jobs)) == runs
    assert all(len({run.method.name for run in job}) == 1 for job in jobs)
    assert len(jobs) >= min(len(runs), 2 * workers)

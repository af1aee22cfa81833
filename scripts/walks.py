"""Trace the walks of CONTRIBUTING.md: the files in which a function of fedvi ran, and its deepest stack.

    python scripts/walks.py [reproduce|simulate|fit|predict|site ...] [--files]

What runs while a module is imported does not count. Each walk has a process of its own. The walk `site` is one update
of a real site that is already open: what it asks, what the coordinator answers, what the site makes of it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FUNCTION = 2  # in co_flags: the code has locals of its own, so it is no module and no class body


def trace(walk: str, *, show: bool) -> None:
    """Run one walk under a profiler, and print what it touched."""
    import fedvi

    home = str(Path(str(fedvi.__file__)).parent) + os.sep
    files: set[str] = set()
    deepest: list[str] = []

    def look(frame: FrameType | None, event: str, _: Any) -> None:
        if event != "call" or frame is None or not frame.f_code.co_filename.startswith(home):
            return
        stack: list[str] = []
        while frame is not None:
            code = frame.f_code
            if code.co_filename.startswith(home):
                if not code.co_flags & FUNCTION:
                    return
                stack.append(f"{code.co_filename.removeprefix(home)}:{code.co_name}")
            frame = frame.f_back
        files.add(stack[0].partition(":")[0])
        if len(stack) > len(deepest):
            deepest[:] = stack

    with tempfile.TemporaryDirectory() as folder:
        os.environ["FEDVI_STATE_DIR"] = folder  # where ledgers are remembered
        run = WALKS[walk](Path(folder))
        sys.setprofile(look)
        run()
        sys.setprofile(None)
    print(f"{walk}: {len(files)} files, deepest stack {len(deepest)}")
    if show:
        print("", *sorted(files), "", *reversed(deepest), sep="\n  ")


def command(*words: object) -> Callable[[], object]:
    """Return a call of the command line."""
    from fedvi.cli import main as cli

    def run() -> None:
        sys.argv = ["fedvi", *map(str, words)]
        with (
            contextlib.suppress(SystemExit),
            Path(os.devnull).open("w") as nowhere,
            contextlib.redirect_stdout(nowhere),
        ):
            cli()

    return run


def reproduce(folder: Path) -> Callable[[], object]:
    """One DP-PVI run of `fedvi reproduce`."""
    words = "reproduce --partition C --method dp-pvi-strict --eps 0.5 --seeds 1 --rule strict --workers 1 --out"
    return command(*words.split(), folder / "run")


def simulate(_: Path) -> Callable[[], object]:
    """`simulate` with budgets."""
    import numpy as np

    import fedvi
    from fedvi.inference import GradientSteps
    from fedvi.privacy import PoissonGaussian

    x = np.random.default_rng(0).normal(size=(400, 3))
    y = np.where(x[:, 0] > 0, 1, -1)
    clients = {"north": (x[:200], y[:200]), "south": (x[200:], y[200:])}
    algorithm = fedvi.PVI(GradientSteps(mechanism=PoissonGaussian()))
    settings: dict[str, Any] = {"seed": 1, "algorithm": algorithm, "communications": 20, "privacy": fedvi.Budget(1.0)}
    return lambda: fedvi.simulate(clients, fedvi.LogisticRegression(), **settings)


def fit(folder: Path) -> Callable[[], object]:
    """From a CSV file to predictions."""
    table, schema, model = ROOT / "examples" / "patients.csv", folder / "schema.toml", folder / "model.fedvi"
    command("schema", "infer", table, "--target", "readmitted", "--ignore", "hospital", "--out", schema)()
    fitting = command("fit", schema, table, "--site-column", "hospital", "--eps", 1, "--out", model)
    new = ROOT / "examples" / "new_patients.csv"
    predicting = command("predict", model, new, "--id", "patient", "--out", folder / "predictions.csv")
    return lambda: fitting() or predicting()


def predict(folder: Path) -> Callable[[], object]:
    """Predictions alone."""
    fit(folder)()
    new = ROOT / "examples" / "new_patients.csv"
    return command("predict", folder / "model.fedvi", new, "--id", "patient", "--out", folder / "again.csv")


def site(folder: Path) -> Callable[[], object]:
    """One update of a real site."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from small_federation import description, open_coordinator, open_site

    chosen = description(("north",), 6)
    coordinator, opened = open_coordinator(folder, chosen), open_site(folder, chosen)

    def run() -> None:
        data = opened.request()
        assert data is not None
        opened.receive(coordinator.handle("north", data))

    run()  # the first message only asks for q
    return run


WALKS = {each.__name__: each for each in (reproduce, simulate, fit, predict, site)}

if __name__ == "__main__":
    named = [word for word in sys.argv[1:] if word in WALKS]
    if "--here" in sys.argv:
        trace(named[0], show="--files" in sys.argv)
    else:
        for name in named or WALKS:
            subprocess.run([sys.executable, __file__, name, "--here", *sys.argv[1:]], check=True)

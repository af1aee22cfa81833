"""`fedvi audit`: attack the privacy of the installed code, and compare with what it claims."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np

    from fedvi.audit import Finding, Subject, Verdict


def audit(
    unit: Annotated[str, typer.Option(help="What is protected: example or client.")] = "example",
    noise_multiplier: Annotated[float, typer.Option(help="Noise of the audited mechanisms, in clip norms.")] = 5.0,
    clip_norm: Annotated[float, typer.Option(help="Clip norm of the audited mechanisms.")] = 1.5,
    steps: Annotated[int, typer.Option(help="Private steps per update.")] = 25,
    runs: Annotated[int, typer.Option(help="Updates with the canary, and as many without.")] = 1000,
    seed: Annotated[
        int | None, typer.Option(help="Repeatable audit from a seed. Default: the generator of real use.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to draw the picture.")] = Path("audit.png"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Attack the code that sites run: unit tests of its parts, and an adversary against whole updates.

    Prints what is claimed beside what is found, and draws the picture. Exit code 1 if a claim is contradicted.
    """
    from fedvi.audit import audit_parts, audit_update
    from fedvi.audit.picture import draw_audit

    findings: dict[str, list[Finding]] = {}
    with _working(quiet=as_json) as status:
        for name, subject in _subjects(unit, noise_multiplier, clip_norm, steps, _generators(seed)).items():
            status.update(f"Attacking: {name} ...")
            findings[name] = audit_parts(subject)
        status.update("Attacking whole updates ...")
        verdict = audit_update(subject, runs)
        draw_audit(verdict, out)
    passed = verdict.passed and all(finding.passed for part in findings.values() for finding in part)
    if as_json:
        typer.echo(json.dumps(_plain(findings, verdict, passed, out)))
    else:
        _show(findings, verdict, passed, out)
    if not passed:
        raise typer.Exit(1)


def _subjects(
    unit: str, noise_multiplier: float, clip_norm: float, steps: int, generators: Iterator[np.random.Generator]
) -> dict[str, Subject]:
    """Return what is audited in parts; the last one, without sampling, also as whole updates."""
    import jax.numpy as jnp

    from fedvi import (
        PVI,
        AveragedQuadratics,
        ClientLevel,
        CustomModel,
        FullBatch,
        FullBatchGaussian,
        FullGaussian,
        GradientSteps,
        LinearRegression,
        NoiseAwarePVI,
        PoissonGaussian,
    )
    from fedvi.audit import Subject
    from fedvi.checks import one_of

    def generator() -> np.random.Generator:
        return next(generators)

    one_of("unit", unit, ("example", "client"))
    if unit == "client":
        protection = ClientLevel(noise_multiplier, clip_norm)
        algorithm = PVI(GradientSteps(steps, 0.5, FullBatch()), damping=1.0, client_level=protection)
        return {
            "client level, full covariance": Subject(algorithm, generator, family=FullGaussian),
            "client level": Subject(algorithm, generator),
        }
    custom = CustomModel(lambda w, x, y: -0.5 * (y - jnp.tanh(x @ w)) ** 2, samples=2)
    full = FullBatchGaussian(noise_multiplier, clip_norm)
    loss = FullBatchGaussian(noise_multiplier, clip_norm, clips="loss")
    poisson = PoissonGaussian(noise_multiplier, clip_norm, minimum=8)
    return {
        "Poisson sampling, logistic": Subject(PVI(GradientSteps(steps, 0.5, poisson)), generator),
        "full batch, linear, full covariance": Subject(
            PVI(GradientSteps(steps, 0.5, full)), generator, LinearRegression(), FullGaussian
        ),
        "full batch, own model, whole loss clipped": Subject(PVI(GradientSteps(steps, 0.5, loss)), generator, custom),
        "full batch, noise-aware": Subject(NoiseAwarePVI(AveragedQuadratics(mechanism=full)), generator),
        "full batch, logistic": Subject(PVI(GradientSteps(steps, 0.5, full)), generator),
    }


def _generators(seed: int | None) -> Iterator[np.random.Generator]:
    from fedvi.federation.randomness import UPDATE, stream
    from fedvi.privacy.randomness import secure_generator

    update = 0
    while True:
        yield secure_generator() if seed is None else stream(seed, UPDATE, 0, update)
        update += 1


def _working(*, quiet: bool) -> Any:
    from rich.console import Console

    return Console(stderr=True, quiet=quiet).status("Attacking ...")


def _plain(findings: dict[str, list[Finding]], verdict: Verdict, passed: bool, out: Path) -> dict[str, Any]:
    numbers = {name: value for name, value in vars(verdict).items() if isinstance(value, float)}
    return {
        "passed": passed,
        "parts": {name: [dataclasses.asdict(finding) for finding in part] for name, part in findings.items()},
        "update": {**numbers, "passed": verdict.passed},
        "picture": str(out),
    }


def _show(findings: dict[str, list[Finding]], verdict: Verdict, passed: bool, out: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for name, part in findings.items():
        table = Table("test", "claimed", "found", "", title=f"Parts: {name}")
        for finding in part:
            table.add_row(finding.name, finding.claimed, finding.found, "ok" if finding.passed else "REJECTED")
        console.print(table)
    table = Table("", "claimed", "found, at least", title=f"Whole updates: {len(verdict.without)} with and without")
    table.add_row("mu (Gaussian DP)", f"{verdict.mu_claimed:.3f}", f"{verdict.mu_found:.3f}")
    table.add_row(
        f"epsilon at delta {verdict.delta:g}", f"{verdict.epsilon_claimed:.3f}", f"{verdict.epsilon_found:.3f}"
    )
    console.print(table)
    console.print(f"Picture: {out}")
    console.print(
        "No claim was contradicted." if passed else "A CLAIM WAS CONTRADICTED: do not use this code on real data."
    )

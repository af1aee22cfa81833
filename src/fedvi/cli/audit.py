"""`fedvi audit`: attack the privacy of the installed code, and compare with what it claims."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedvi import console
from fedvi.cli.options import AsJson, require_figure

if TYPE_CHECKING:
    from fedvi.audit.draws import Finding
    from fedvi.audit.membership import AuditResult
    from fedvi.audit.subject import Subject
    from fedvi.privacy.sampling import Source


def audit(
    unit: Annotated[str, typer.Option(metavar="UNIT", help="Set what is protected: row or client.")] = "row",
    noise_multiplier: Annotated[float, typer.Option(metavar="X", help="Set the noise, in clip norms.")] = 5.0,
    clip_norm: Annotated[float, typer.Option(metavar="X", help="Set the clip norm.")] = 1.5,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Set the private steps per update.")] = 25,
    runs: Annotated[
        int, typer.Option(min=10, metavar="N", help="Make N updates with the canary row, and N without.")
    ] = 25_000,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Draw from this seed. Default: from the operating system, as sites do."),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a picture here: PNG, SVG or PDF.")] = None,
    as_json: AsJson = False,
) -> None:
    """Attack the installed code, and compare its privacy claims with what is found.

    Coupling: a table, and its neighbour with shifted noise, must give the same
    bytes. The shift is the sensitivity, in clip norms C; at most 1 is allowed.

    Lattice: every noisy number is a whole number on one public grid.

    Sensitivity: how far canary rows move a sum, in C.

    Noise and sampling: statistics of a million numbers. Each rejects correct
    code once in a million audits.

    Whole updates: how well an adversary recognises the canary row, as lower
    bounds on mu (Gaussian DP) and epsilon. With 25,000 runs the bound on a
    true mu of 1 is about .95.

    The exit code is 1 if a claim is contradicted.
    """
    from fedvi.audit.membership import audit_update, draw_audit
    from fedvi.privacy.sampling import UPDATE, Seeded, System

    if out is not None:
        require_figure(out, force=True)
    findings: dict[str, list[Finding]] = {}
    count = itertools.count()
    source: Callable[[], Source] = System if seed is None else lambda: Seeded(seed, UPDATE, 0, next(count))
    attacks, whole = _attacks(unit, noise_multiplier, clip_norm, steps, source)
    with console.working("Attacking ...", quiet=as_json) as status:
        for name, attack in attacks.items():
            status.update(f"Attacking: {name} ...")
            findings[name] = attack()
        status.update("Attacking whole updates ...")
        verdict = audit_update(whole, runs)
        if out is not None:
            draw_audit(verdict, out)
    passed = verdict.passed and all(finding.passed for part in findings.values() for finding in part)
    if as_json:
        parts = {name: [dataclasses.asdict(finding) for finding in part] for name, part in findings.items()}
        numbers = {name: value for name, value in vars(verdict).items() if isinstance(value, float)}
        update = {**numbers, "passed": verdict.passed}
        console.print_json(
            {"passed": passed, "parts": parts, "update": update, "picture": None if out is None else str(out)}
        )
    else:
        _show(findings, verdict, passed, out)
    if not passed:
        raise typer.Exit(1)


def _attacks(
    unit: str, noise_multiplier: float, clip_norm: float, steps: int, source: Callable[[], Source]
) -> tuple[dict[str, Callable[[], list[Finding]]], Subject]:
    """Return the attacks on parts by name, and what is audited as whole updates, without sampling."""
    import numpy as np

    from fedvi.audit.parts import audit_parts, audit_sum
    from fedvi.audit.subject import Subject
    from fedvi.checks import one_of
    from fedvi.compiling import jax, jnp
    from fedvi.families.full import FullGaussian
    from fedvi.inference.algorithms import PVI
    from fedvi.inference.asking import NoiseAwarePVI
    from fedvi.inference.local_problem import GradientSteps
    from fedvi.inference.questions import Answers
    from fedvi.models.custom import CustomModel
    from fedvi.models.linear import LinearRegression
    from fedvi.privacy.client_level import ClientLevel
    from fedvi.privacy.mechanism import FullBatchGaussian, Mechanism, PoissonGaussian
    from fedvi.privacy.sums import BoundedSum
    from fedvi.privacy.without_privacy import FullBatch

    one_of("unit", unit, ("row", "client"))
    if unit == "client":
        protection = ClientLevel(noise_multiplier, clip_norm)
        algorithm = PVI(GradientSteps(steps, 0.5, FullBatch()), damping=1.0, client_level=protection)
        full, whole = Subject(algorithm, source, family=FullGaussian), Subject(algorithm, source)
        return {
            "client level, full covariance": lambda: audit_parts(full),
            "client level": lambda: audit_parts(whole),
        }, whole

    def by(mechanism: Mechanism, steps: int = min(steps, 5)) -> PVI:  # exact audits need no more
        return PVI(GradientSteps(steps, 0.5, mechanism))

    def positives(_: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (y > 0)[:, None].astype(np.float64)

    custom = CustomModel(lambda w, x, y: -0.5 * (y - jnp.tanh(x @ w)) ** 2, samples=2)
    draws = dataclasses.replace(custom, draw=lambda w, x, key: jnp.tanh(x @ w) + jax.random.normal(key))
    batch = FullBatchGaussian(noise_multiplier, clip_norm)
    loss = FullBatchGaussian(noise_multiplier, clip_norm, clips="loss")
    answers = Answers(FullBatchGaussian(noise_multiplier, 1.0))
    poisson = PoissonGaussian(noise_multiplier, clip_norm, minimum=8)
    subjects = {
        "Poisson sampling, logistic": Subject(by(poisson), source),
        "full batch, linear, full covariance": Subject(by(batch), source, LinearRegression(), FullGaussian),
        "full batch, own model, whole loss clipped": Subject(by(loss), source, custom),
        "full batch, own model that draws outcomes": Subject(by(batch), source, draws),
        "answers to questions": Subject(NoiseAwarePVI(answers, covariance="full", questions=14, moments=3), source),
        "full batch, logistic": Subject(by(batch), source),
    }
    whole = Subject(by(batch, steps), source)
    x, y = whole.table(np.ones(whole.dim))
    return {
        **{name: functools.partial(audit_parts, subject) for name, subject in subjects.items()},
        "private sums": lambda: audit_sum(BoundedSum(noise_multiplier), positives, x, y, source, average=True),
    }, whole


def _show(findings: dict[str, list[Finding]], verdict: AuditResult, passed: bool, out: Path | None) -> None:
    def row(finding: Finding) -> tuple[str, ...]:
        return finding.name, finding.claimed, finding.found, "ok" if finding.passed else "REJECTED"

    whole = (
        ("mu (Gaussian DP)", f"{verdict.mu_claimed:.3f}", f"{verdict.mu_found:.3f}"),
        (f"epsilon at delta {verdict.delta:g}", f"{verdict.epsilon_claimed:.3f}", f"{verdict.epsilon_found:.3f}"),
    )
    console.show(
        *(console.table("test|claimed|found|", map(row, part), f"Parts: {name}") for name, part in findings.items()),
        console.table("|claimed|found, at least", whole, f"Whole updates: {len(verdict.without)} with and without"),
        *([] if out is None else [f"Picture: {out}"]),
        "No claim was contradicted." if passed else "A CLAIM WAS CONTRADICTED: do not use this code on real data.",
    )

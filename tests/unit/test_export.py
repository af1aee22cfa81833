"""From the coordinator's file to a posterior file: one instant of it, whatever a single site says about itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedvi.federation import wire
from fedvi.federation.coordinator import Coordinator
from fedvi.federation.coordinator_file import CoordinatorFile
from fedvi.federation.widths import FAR, SPREAD, Said, combined
from fedvi.federation.wire import Declared
from fedvi.fitting import Fitted
from fedvi.fitting.from_federation import fitted_of
from fedvi.models import LinearRegression, LogisticRegression
from small_federation import answer, description, factor, message, open_coordinator

DESCRIPTION = description(("north", "south", "east"))
HONEST = Declared(200, 0.5, 1.0, 1e-3, ())
NOISE = 11.515750084123917
"""Of a site's number about the width, at epsilon 1 and delta 1e-3."""


def say(coordinator: Coordinator, name: str, number: float, declared: Declared = HONEST) -> wire.Answer:
    """Let a site say its number about the width."""
    sequence, arrays = coordinator.site(name).sequence + 1, {"0": np.asarray(number)}
    data = message(DESCRIPTION, sequence, arrays, wire.WIDTH, state=wire.FINISHED, declared=declared)
    return answer(coordinator.handle(name, data))


@pytest.fixture
def coordinator(tmp_path: Path) -> Any:
    with open_coordinator(tmp_path, DESCRIPTION) as opened:
        for number, name in enumerate(DESCRIPTION.sites):
            opened.handle(name, message(DESCRIPTION, 1, factor(number)))
        yield opened


def ratio_of(coordinator: Coordinator) -> float:
    """Return by how much an export corrects the factors."""
    corrected: Any = fitted_of(coordinator).factors
    stored: Any = coordinator.factors()
    return float(np.median(np.asarray(corrected.precision) / np.asarray(stored.precision)))


def test_the_correction_is_the_average_over_all_rows_of_honest_sites(coordinator: Coordinator) -> None:
    assert ratio_of(coordinator) == 1
    for name, number in (("north", 140.0), ("south", 120.0), ("east", 100.0)):
        assert say(coordinator, name, number).kind == wire.POSTERIOR
    assert ratio_of(coordinator) == pytest.approx(360 / 600, rel=1e-6)


UNUSABLE = [
    Declared(200, 0.0, 1e-6, 1e-6, ()),
    Declared(200, 0.0, 1e6, 1e-300, ()),
    Declared(200, 0.0, 1e-6, 5e-324, ()),
    Declared(0, 0.5, 1.0, 1e-3, ()),
]


@pytest.mark.parametrize("declared", UNUSABLE, ids=str)
def test_a_site_that_declares_what_cannot_be_has_said_nothing_and_keeps_nobody_from_exporting(
    declared: Declared, coordinator: Coordinator, tmp_path: Path
) -> None:
    say(coordinator, "north", 140.0)
    say(coordinator, "south", 120.0)
    say(coordinator, "east", 10.0, declared)
    assert ratio_of(coordinator) == pytest.approx(260 / 400, rel=1e-6)
    fitted_of(coordinator).save(tmp_path / "model.fedvi")
    assert len(Fitted.load(tmp_path / "model.fedvi").sites) == 3


@pytest.mark.parametrize("delta", [1e-3, 1 - 1e-16])
def test_a_site_that_declares_a_budget_beyond_all_sense_is_heard_no_more_than_others(
    delta: float, coordinator: Coordinator
) -> None:
    say(coordinator, "north", 140.0)
    say(coordinator, "south", 120.0)
    say(coordinator, "east", 10.0, Declared(200, 0.0, 1e6, delta, ()))
    assert ratio_of(coordinator) == pytest.approx(270 / 600, rel=1e-6)


@pytest.mark.parametrize(
    ("number", "accepted"),
    [(-1e5, False), (-FAR * NOISE - 1, False), (-FAR * NOISE + 1, True), (200.0, True), (200 + FAR * NOISE + 1, False)],
)
def test_a_number_that_no_rows_can_give_is_refused(number: float, accepted: bool, coordinator: Coordinator) -> None:
    got = say(coordinator, "north", number)
    assert got.code == ("" if accepted else "absurd")
    assert accepted or "no 200 rows can give that" in got.reason


def test_an_export_is_of_one_instant_though_a_site_releases_meanwhile(
    coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    factors = CoordinatorFile.factors
    with Coordinator.open(tmp_path / "coordinator.db") as other:
        other._database.execute("PRAGMA busy_timeout = 0")

        def meanwhile(store: CoordinatorFile) -> Any:
            other.handle("north", message(DESCRIPTION, 2, factor(9)))
            return factors(store)

        monkeypatch.setattr(CoordinatorFile, "factors", meanwhile)
        fitted = fitted_of(coordinator)
        monkeypatch.undo()
    assert fitted.settings["version"] == sum(site.updates for site in fitted.sites) == 3
    np.testing.assert_allclose(fitted.posterior.mean, coordinator.posterior.mean, rtol=1e-5)


def honest(count: int, rows: int = 1000, average: float = 0.6, spread: float = 0.05) -> list[Said]:
    rng = np.random.default_rng(count)
    averages = average + spread * rng.uniform(-1, 1, count)
    return [Said(float(rows * each + NOISE * rng.normal()), rows, NOISE) for each in averages]


@pytest.mark.parametrize("count", [1, 2, 3, 10])
@pytest.mark.parametrize(("rows", "spread"), [(1000, 0.2), (20, 0.1)], ids=["long", "short"])
def test_of_honest_sites_the_average_is_that_of_all_rows_and_its_error_is_the_noise(
    count: int, rows: int, spread: float
) -> None:
    said = honest(count, rows, spread=spread)
    average, error = combined(said, count * rows)
    assert average == pytest.approx(sum(each.number for each in said) / (count * rows))
    assert error == pytest.approx(NOISE / (rows * count**0.5))


def test_a_site_with_most_of_the_rows_counts_most() -> None:
    said = [Said(900.0, 1000, NOISE), Said(60.0, 100, NOISE), Said(60.0, 100, NOISE)]
    average, _ = combined(said, 1200)
    assert average == pytest.approx((6 * 0.9 + 0.6 + 0.6) / 8)


LIARS = [
    Said(0.0, 1000, NOISE),
    Said(1000.0, 1000, 0.1),
    Said(-50.0, 1000, NOISE),
    Said(0.0, 4000, NOISE),
    Said(0.0, 2**52, NOISE),
    Said(4000.0, 4000, 0.1),
    Said(-1e5, 200, 2e4),
    Said(1e6, 1, 1e6),
]


@pytest.mark.parametrize("liar", LIARS, ids=str)
@pytest.mark.parametrize("count", [3, 9])
def test_one_site_moves_the_result_by_no_more_than_its_share_whatever_it_says(liar: Said, count: int) -> None:
    others = honest(count)
    rows = 1000 * (count + 1)
    assert liar.is_possible
    truth, noise = combined(others, rows)
    average, error = combined([*others, liar], rows)
    share = min(liar.rows, rows / 2) / (min(liar.rows, rows / 2) + 1000 * count)
    assert share < 0.5
    reach = SPREAD + FAR * NOISE / 1000
    assert abs(average - truth) <= share * reach + 0.1  # and what honest sites differ by
    assert error <= noise + share * reach
    for model, most in ((LogisticRegression(), 1.6), (LinearRegression(1.0), 4.0)):
        moved = model.width_ratio(average, error) / model.width_ratio(truth, noise)
        assert 1 / most < moved < most


def test_an_honest_site_with_much_noise_does_not_drown_the_others() -> None:
    others = honest(3)
    truth, _ = combined(others, 4000)
    average, error = combined([*others, Said(-30_000.0, 1000, 14_000.0)], 4000)
    assert abs(average - truth) < 0.1
    assert abs(average - truth) < 2 * error

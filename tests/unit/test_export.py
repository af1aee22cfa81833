"""From the coordinator's file to a posterior file: one instant of it, and all that the answers say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedvi.errors import InputError
from fedvi.federation import wire
from fedvi.federation.coordinator import Coordinator
from fedvi.federation.store.file import CoordinatorFile
from fedvi.fitting import Fitted
from fedvi.fitting.from_federation import fitted_of
from small_federation import ROWS, answer, answers, description, message, open_coordinator, poll, release

DESCRIPTION = description(("north", "south", "east"))


@pytest.fixture
def coordinator(tmp_path: Path) -> Any:
    """A coordinator to whom north and south have given four answers, and east none."""
    with open_coordinator(tmp_path, DESCRIPTION) as opened:
        for name in ("north", "south"):
            opened.handle(name, poll(DESCRIPTION, 0))
        for number in range(1, 5):
            for seed, name in enumerate(("north", "south")):
                assert answer(opened.handle(name, release(DESCRIPTION, number, seed))).applied == number
        yield opened


def test_an_export_is_what_was_read_last_and_its_file_can_be_read_again(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    fitted = fitted_of(coordinator)
    np.testing.assert_allclose(fitted.posterior.mean, coordinator.posterior.mean, rtol=1e-4)
    np.testing.assert_allclose(fitted.posterior.std, coordinator.posterior.std, rtol=1e-4)
    assert [(site.name, site.rows, site.updates) for site in fitted.sites] == [("north", ROWS, 4), ("south", ROWS, 4)]
    assert fitted.converged == (float(coordinator.asked.arrived) <= float(coordinator.asked.limit))
    fitted.save(tmp_path / "model.fedvi")
    loaded = Fitted.load(tmp_path / "model.fedvi")
    loaded.verify()
    assert (loaded.settings["version"], loaded.settings["federation"]) == (8, "trial")
    assert "north: epsilon 0.5000 of 1 at delta 0.001" in loaded.statement


def test_answers_that_came_after_the_last_reading_count(coordinator: Coordinator) -> None:
    before = fitted_of(coordinator)
    coordinator.handle("north", release(DESCRIPTION, 5, 0))
    coordinator.handle("east", release(DESCRIPTION, 1, 2))
    after = fitted_of(coordinator)
    assert [site.updates for site in after.sites] == [5, 4, 1]
    assert float(np.max(np.abs(np.asarray(after.posterior.mean) - np.asarray(before.posterior.mean)))) > 1e-3


def test_there_is_nothing_to_export_before_anybody_answered(tmp_path: Path) -> None:
    with (
        open_coordinator(tmp_path, DESCRIPTION) as coordinator,
        pytest.raises(InputError, match="at least one answer"),
    ):
        fitted_of(coordinator)


@pytest.mark.parametrize(
    ("epsilon_max", "delta"), [(1e6, 1e-300), (1e6, 1 - 1e-16), (0.1, 5e-324)], ids=["generous", "careless", "mean"]
)
def test_a_site_that_declares_what_makes_no_sense_keeps_nobody_from_exporting(
    epsilon_max: float, delta: float, coordinator: Coordinator, tmp_path: Path
) -> None:
    said = wire.Declared(ROWS, 0.0, epsilon_max, delta, ())
    data = message(DESCRIPTION, 1, answers(DESCRIPTION, 2, 1), declared=said)
    assert answer(coordinator.handle("east", data)).applied == 1
    fitted_of(coordinator).save(tmp_path / "model.fedvi")
    assert len(Fitted.load(tmp_path / "model.fedvi").sites) == 3


def test_an_export_is_of_one_instant_though_a_site_releases_meanwhile(
    coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    factors = CoordinatorFile.factors
    with Coordinator.open(tmp_path / "coordinator.db") as other:
        other._database.execute("PRAGMA busy_timeout = 0")

        def meanwhile(store: CoordinatorFile) -> Any:
            other.handle("north", release(DESCRIPTION, 5, 0))
            return factors(store)

        monkeypatch.setattr(CoordinatorFile, "factors", meanwhile)
        fitted = fitted_of(coordinator)
        monkeypatch.undo()
    assert fitted.settings["version"] == sum(site.updates for site in fitted.sites) == 8
    np.testing.assert_allclose(fitted.posterior.mean, coordinator.posterior.mean, rtol=1e-4)

"""Laws of which unit tests check a case each, over all of their settings."""

from __future__ import annotations

import pytest

from clipped import ALL_MODELS, MODELS, SPREADS, check_closed_form, check_long_sum, check_order
from conjugate import SCHEDULES, SIZES, check_defaults, check_exact, check_mean_field
from fedvi.inference import CentralisedVI, Committee


@pytest.mark.parametrize("clients", SIZES)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_conjugate_posterior_is_exact_for_any_number_of_clients(clients: int, schedule: str, x64: bool) -> None:
    check_exact(clients, schedule, x64)


@pytest.mark.parametrize("clients", SIZES)
@pytest.mark.parametrize("schedule", ["one sequential pass", "asynchronous"])
def test_mean_field_runs_of_any_number_of_clients_converge_to_the_optimum(
    clients: int, schedule: str, x64: bool
) -> None:
    check_mean_field(clients, schedule, x64)


@pytest.mark.parametrize(
    "algorithm", [CentralisedVI(), Committee(), Committee(prior="split")], ids=["all", "same", "split"]
)
@pytest.mark.parametrize("clients", [2, 10])
def test_defaults_reach_the_optimum_for_any_number_of_clients(
    clients: int, algorithm: CentralisedVI | Committee
) -> None:
    check_defaults(clients, algorithm)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("with_offset", [False, True])
@pytest.mark.parametrize("family", SPREADS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("clip", [1.0, 1e3])
def test_closed_form_is_the_definition_in_both_precisions(
    model: str, family: str, clip: float, with_offset: bool
) -> None:
    check_closed_form(model, family, clip, with_offset)


@pytest.mark.parametrize("with_offset", [False, True])
@pytest.mark.parametrize("family", SPREADS)
@pytest.mark.parametrize("model", ALL_MODELS)
def test_sums_of_all_models_and_families_are_the_same_bits_in_any_order(
    model: str, family: str, with_offset: bool
) -> None:
    check_order(ALL_MODELS[model], family, with_offset)


@pytest.mark.parametrize("with_offset", [False, True])
@pytest.mark.parametrize("count", [100, 10_000, 100_000])
def test_rounding_of_sums_of_any_length_stays_within_the_clip_norm(count: int, with_offset: bool) -> None:
    check_long_sum(count, with_offset)

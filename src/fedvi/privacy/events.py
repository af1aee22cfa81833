"""What happened to the data, as dp-accounting's `DpEvent` values: made here, written to JSON and read back here.

An event says what was done, not what it costs; accountants say that (`fedvi.privacy.accounting`). Only the kinds made
in this file exist for fedvi. What is not among them is refused, never guessed.

dp-accounting takes a second to import, so that it is imported when the first event is made.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from fedvi.checks import in_range, one_number, whole
from fedvi.errors import InputError

if TYPE_CHECKING:
    from dp_accounting import DpEvent

NOT_PRIVATE = "not private"
"""The event of a release that no mechanism protects."""

LEAST_NOISE = 1e-3
"""Less noise than this protects nothing, and overflows what accountants compute."""

MOST_NOISE = 1e6
"""More noise than this leaves nothing, and large whole numbers would not survive compilation."""

EXAMPLE, CLIENT = "example", "client"
"""Units of privacy: one row of one client, or all that a client holds."""


def gaussian(noise_multiplier: Any, steps: int = 1) -> DpEvent:
    """Return the event of `steps` Gaussian mechanisms on all rows.

    noise_multiplier: standard deviation of the noise, in units of the most that one unit of privacy can add.
    """
    import dp_accounting as dp

    _check_noise(noise_multiplier)
    return _repeated(dp.GaussianDpEvent(float(noise_multiplier)), steps)


def poisson_gaussian(noise_multiplier: Any, sampling_rate: float, steps: int = 1) -> DpEvent:
    """Return the event of `steps` Gaussian mechanisms, each on rows that were drawn independently with one rate."""
    import dp_accounting as dp

    _check_noise(noise_multiplier)
    in_range("sampling_rate", sampling_rate, 0, 1, open_low=True)
    if sampling_rate == 1:
        return gaussian(noise_multiplier, steps)
    return _repeated(dp.PoissonSampledDpEvent(float(sampling_rate), dp.GaussianDpEvent(float(noise_multiplier))), steps)


def padded_poisson_gaussian(
    noise_multiplier: Any, sampling_rate: float, rows: int, capacity: int, steps: int = 1
) -> DpEvent:
    """Return the same with batches that have room for `capacity` rows: of more, a random subset is used.

    rows: of the larger of two neighbouring data sets.
    """
    import dp_accounting as dp

    _check_noise(noise_multiplier)
    in_range("sampling_rate", sampling_rate, 0, 1, open_low=True)
    whole("rows", rows, 1)
    whole("capacity", capacity, 1)
    return _repeated(
        dp.TruncatedSubsampledGaussianDpEvent(rows, float(sampling_rate), capacity, float(noise_multiplier)), steps
    )


def noise_given(noise_multiplier: Any) -> Any:
    """Return the noise multiplier, or raise if it was left open and no budget has fixed it."""
    if noise_multiplier is None:
        raise InputError(
            "Expected a noise_multiplier, got None. Give one, or give a budget and max_updates from which it is found."
        )
    return noise_multiplier


def with_noise(event: Hashable, noise_multiplier: float) -> DpEvent:
    """Return the same event with another noise multiplier."""
    return from_json({**to_json(event), "noise_multiplier": noise_multiplier})


def _check_noise(noise_multiplier: object) -> None:
    noise_given(noise_multiplier)
    one_number("noise_multiplier", noise_multiplier)
    in_range("noise_multiplier", noise_multiplier, LEAST_NOISE, MOST_NOISE)


def _repeated(event: DpEvent, steps: int) -> DpEvent:
    import dp_accounting as dp

    whole("steps", steps, 1)
    return dp.SelfComposedDpEvent(event, int(steps))


def parts(event: Hashable) -> tuple[DpEvent, int]:
    """Return the single step of an event made here, and how often it is repeated."""
    import dp_accounting as dp

    if isinstance(event, dp.SelfComposedDpEvent) and type(event.event) in _kinds().values():
        return event.event, event.count
    raise InputError(f"Expected an event made by fedvi.privacy.events, got {event!r}.")


def to_json(event: Hashable) -> dict[str, Any]:
    """Return the event as plain values."""
    step, count = parts(event)
    name = next(name for name, kind in _kinds().items() if type(step) is kind)
    return {"kind": name, "steps": count, **_fields(step)}


def from_json(values: dict[str, Any]) -> DpEvent:
    """Return the event that `to_json` wrote, or raise `InputError`."""
    makers: dict[str, Any] = {
        "gaussian": gaussian,
        "poisson gaussian": poisson_gaussian,
        "padded poisson gaussian": padded_poisson_gaussian,
    }
    fields = dict(values)
    try:
        return makers[fields.pop("kind")](**fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"Expected an event as written by fedvi, got {values!r}.") from error


def summarise(event: Hashable) -> str:
    """Return what happened, in a few words."""
    fields = to_json(event)
    rate = f", rate {fields['sampling_rate']:.4g}" if "sampling_rate" in fields else ""
    return f"{fields['steps']} steps{rate}, noise {fields['noise_multiplier']:g}"


def describe(event: Hashable, unit: str = EXAMPLE) -> str:
    """Return what happened, in words."""
    fields = to_json(event)
    steps, noise = fields["steps"], f"Gaussian noise of {fields['noise_multiplier']:g} clip norms"
    times = "once" if steps == 1 else f"{steps} times"
    if unit == CLIENT:
        return f"{times} the whole change of the client's factor, with {noise}"
    if fields["kind"] == "gaussian":
        return f"{times} a sum over all rows with {noise}"
    return f"{times} a sum over rows drawn independently with probability {fields['sampling_rate']:.4g}, with {noise}"


def _kinds() -> dict[str, type]:
    import dp_accounting as dp

    return {
        "gaussian": dp.GaussianDpEvent,
        "poisson gaussian": dp.PoissonSampledDpEvent,
        "padded poisson gaussian": dp.TruncatedSubsampledGaussianDpEvent,
    }


def _fields(step: Any) -> dict[str, Any]:
    import dp_accounting as dp

    match step:
        case dp.GaussianDpEvent():
            return {"noise_multiplier": step.noise_multiplier}
        case dp.PoissonSampledDpEvent():
            return {"noise_multiplier": step.event.noise_multiplier, "sampling_rate": step.sampling_probability}
        case _:
            return {
                "noise_multiplier": step.noise_multiplier,
                "sampling_rate": step.sampling_probability,
                "rows": step.dataset_size,
                "capacity": step.truncated_batch_size,
            }

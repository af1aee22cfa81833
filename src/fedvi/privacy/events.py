"""What happened to the data: `Event`, a plain value that is written to JSON and read back.

An event says what was done, not what it costs; accountants say that (`fedvi.privacy.accounting`). Only Gaussian
mechanisms exist for fedvi, on all rows or on rows that were drawn independently. What is not an event is refused, never
guessed.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Final, Literal

from fedvi.checks import in_range, one_number, whole
from fedvi.errors import InputError

NOT_PRIVATE: Final = "not private"
"""The event of a release that no mechanism protects."""

LEAST_NOISE = 1e-3
"""Less noise than this protects nothing, and overflows what accountants compute."""

MOST_NOISE = 1e6
"""More noise than this leaves nothing, and large whole numbers would not survive compilation."""

ETA, TAU, FLIP = 2.0**-48, 2.0**-52, 2.0**-47
"""How far what is drawn is from what an event says; accountants charge for it.

ETA, TAU: of a number with noise (`fedvi.privacy.lattice`), relative, and in probability of what is left out.
FLIP: of the decision that a row is not in a batch (`fedvi.privacy.sampling`), relative; that it is, over the rate.
"""

ROW, CLIENT = "row", "client"
"""Units of privacy: one row of one client, or all that a client holds."""


@dataclasses.dataclass(frozen=True)
class Event:
    """So many Gaussian mechanisms, one after another.

    noise_multiplier: standard deviation of the noise, in units of the most that one unit of privacy can add.
    steps: how many. numbers: that get noise in each of them, all drawn on a lattice; 0 if it is not known.
    sampling_rate: probability with which each row is in a step; 1 for all rows.
    rows: the most rows that the larger of two neighbours may have; 0 if it is not known.
    capacity: rows that a step has room for; of more, a random subset is used. 0: there is room for all.
    """

    noise_multiplier: float
    steps: int = 1
    numbers: int = 0
    sampling_rate: float = 1.0
    rows: int = 0
    capacity: int = 0

    def __post_init__(self) -> None:
        noise_given(self.noise_multiplier)
        one_number("noise_multiplier", self.noise_multiplier)
        in_range("noise_multiplier", self.noise_multiplier, LEAST_NOISE, MOST_NOISE)
        in_range("sampling_rate", self.sampling_rate, 0, 1, open_low=True)
        for name in ("noise_multiplier", "sampling_rate"):
            if not isinstance(getattr(self, name), int | float) and not hasattr(getattr(self, name), "dtype"):
                raise InputError(f"Expected a number for {name}, got {getattr(self, name)!r}.")
            object.__setattr__(self, name, float(getattr(self, name)))
        whole("steps", self.steps, 1)
        for name in ("numbers", "rows", "capacity"):
            whole(name, getattr(self, name), 0)
        if self.capacity and not (self.rows and self.sampling_rate < 1):
            raise InputError(f"Expected rows and a sampling rate below 1 with capacity {self.capacity}, got {self}.")

    @property
    def kind(self) -> str:
        """What it is called in files."""
        if self.sampling_rate == 1:
            return "gaussian"
        return "padded poisson gaussian" if self.capacity else "poisson gaussian"

    @property
    def distance(self) -> float:
        """How far the logarithm of a probability can be off, because what is drawn is made of random words."""
        coins = ((self.capacity or self.rows) / self.sampling_rate + self.rows) * FLIP
        return self.steps * (self.numbers * ETA + coins)

    @property
    def mu(self) -> float:
        """The parameter of Gaussian differential privacy, if all rows are in every step."""
        return math.sqrt(self.steps) / self.noise_multiplier


AnyEvent = Event | Literal["not private"]
"""What a release did to the rows: an event, or `NOT_PRIVATE`."""


def gaussian(noise_multiplier: Any, steps: int = 1, numbers: int = 0) -> Event:
    """Return the event of `steps` Gaussian mechanisms on all rows."""
    return Event(noise_multiplier, steps, numbers)


def poisson_gaussian(
    noise_multiplier: Any, sampling_rate: float, steps: int = 1, numbers: int = 0, rows: int = 0, capacity: int = 0
) -> Event:
    """Return the event of `steps` Gaussian mechanisms, each on rows that were drawn independently with one rate."""
    return Event(noise_multiplier, steps, numbers, sampling_rate, 0 if sampling_rate == 1 else rows, capacity)


def noise_given(noise_multiplier: Any) -> Any:
    """Return the noise multiplier, or raise if it was left open and no budget has fixed it."""
    if noise_multiplier is None:
        raise InputError(
            "Expected a noise_multiplier, got None. Give one, or give a budget and max_updates from which it is found."
        )
    return noise_multiplier


def with_noise(event: AnyEvent, noise_multiplier: float) -> Event:
    """Return the same event with another noise multiplier."""
    return dataclasses.replace(known(event), noise_multiplier=noise_multiplier)


def known(event: AnyEvent) -> Event:
    """Return the event, or raise if it is none of ours."""
    if isinstance(event, Event):
        return event
    raise InputError(f"Expected an event made by fedvi.privacy.events, got {event!r}.")


def to_json(event: AnyEvent) -> dict[str, Any]:
    """Return the event as plain values."""
    values = dataclasses.asdict(known(event))
    if values["sampling_rate"] == 1:
        del values["sampling_rate"]
    return {"kind": known(event).kind, **{name: value for name, value in values.items() if value or name == "numbers"}}


def from_json(values: dict[str, Any]) -> Event:
    """Return the event that `to_json` wrote, or raise `InputError`."""
    fields = dict(values)
    try:
        kind = fields.pop("kind")
        event = Event(**fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"Expected an event as written by fedvi, got {values!r}.") from error
    if event.kind != kind:
        raise InputError(f"Expected an event of kind {event.kind!r} with such fields, got {values!r}.")
    return event


def summarise(event: AnyEvent) -> str:
    """Return what happened, in a few words."""
    fields = known(event)
    rate = f", rate {fields.sampling_rate:.4g}" if fields.sampling_rate < 1 else ""
    return f"{fields.steps} steps{rate}, noise {fields.noise_multiplier:g}"


def describe(event: AnyEvent, unit: str = ROW) -> str:
    """Return what happened, in words."""
    fields = known(event)
    times = "once" if fields.steps == 1 else f"{fields.steps} times"
    noise = f"Gaussian noise of {fields.noise_multiplier:g} clip norms"
    if unit == CLIENT:
        return f"{times} the whole change of the client's factor, with {noise}"
    if fields.sampling_rate == 1:
        return f"{times} a sum over all rows with {noise}"
    return f"{times} a sum over rows drawn independently with probability {fields.sampling_rate:.4g}, with {noise}"

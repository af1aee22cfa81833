"""Fair timing on a machine whose speed drifts: contenders take turns.

    ratio(a, b) = median over rounds of (seconds of a / seconds of b, both from the same round)

A machine that is a third slower for a second slows all contenders of that round, and the quotient does not move. In
every round each contender works for a block of about 10 ms, and another one begins. The quotient of the minima is
kept as a second opinion: it asks for one undisturbed block each, however far apart.

The clock is the processor's time of this process: it stands still while another process has the core, and equals the
clock on the wall where nobody else does. Work that waits, for a disk or a network, must not be timed with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import process_time
from timeit import Timer

BLOCK_SECONDS = 0.01
ROUNDS = 40


@dataclass(frozen=True)
class Contender:
    """call: does the work and waits until it is done. units: how many steps one call makes."""

    call: Callable[[], object]
    units: int = 1


@dataclass(frozen=True)
class Samples:
    """Seconds per unit of every contender, one number per round."""

    seconds: Mapping[str, Sequence[float]]

    def typical(self, name: str) -> float:
        """Return the median over rounds, in seconds per unit."""
        return median(self.seconds[name])

    def best(self, name: str) -> float:
        """Return the least over rounds, in seconds per unit."""
        return min(self.seconds[name])

    def ratio(self, name: str, to: str) -> float:
        """Return the median over rounds of the quotient of two contenders in the same round."""
        return median(a / b for a, b in zip(self.seconds[name], self.seconds[to], strict=True))

    def ratio_of_best(self, name: str, to: str) -> float:
        """Return the quotient of the two least times."""
        return self.best(name) / self.best(to)


def take_turns(
    contenders: Mapping[str, Contender],
    rounds: int = ROUNDS,
    block_seconds: float = BLOCK_SECONDS,
    clock: Callable[[], float] = process_time,
) -> Samples:
    """Measure all contenders in turns; everything is called twice before, to compile and to size the blocks."""
    timers = {name: Timer(contender.call, timer=clock) for name, contender in contenders.items()}
    calls = {name: _calls(timer, block_seconds) for name, timer in timers.items()}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            seconds[name].append(timers[name].timeit(calls[name]) / (calls[name] * contenders[name].units))
    return Samples(seconds)


def _calls(timer: Timer, block_seconds: float) -> int:
    """Return how many calls a block has."""
    timer.timeit(1)
    calls = 1
    while (took := timer.timeit(calls)) < block_seconds / 2:
        calls *= 4
    return max(1, round(calls * block_seconds / took))

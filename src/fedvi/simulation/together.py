"""Several runs played together: one compiled loop over the runs, and inside it one over the turns of each.

Runs that share rows and model, and whose settings differ in numbers only (seeds, learning rates, noise, clips), are the
same program with other data. A run comes out the same, bit for bit, alone or in company.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from fedvi.inference.local_problem import Draws
from fedvi.inference.server import Verdict
from fedvi.simulation.compiled import Block, Carry, Turns, run_blocks
from fedvi.simulation.plan import PlannedTurn
from fedvi.simulation.prepare import Run

BLOCK_TURNS = 128
BLOCK_BYTES = 32_000_000
"""A block has at most so many turns of every run, and randomness of at most about so many bytes."""


def kind_of(run: Run) -> Hashable:
    """Return what runs must have in common to be played together."""
    leaves, structure = jax.tree.flatten((run.algorithms, run.public))
    shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)
    return id(run.sites), structure, shapes, run.batch_capacity


@dataclasses.dataclass(frozen=True, eq=False)
class Together:
    """Runs of one kind.

    longest_block: turns after which there is something to do outside of compiled code.
    """

    runs: tuple[Run, ...]
    longest_block: float

    @functools.cached_property
    def block_capacity(self) -> int:
        """Turns of each run that one compiled call has room for."""
        bytes_per_turn = len(self.runs) * sum(leaf.nbytes for leaf in self._form[0])
        return max(1, int(min(BLOCK_TURNS, self.longest_block, BLOCK_BYTES // bytes_per_turn)))

    def play(self, carry: Carry, blocks: Sequence[Sequence[PlannedTurn]]) -> tuple[Carry, list[list[Verdict]]]:
        """Play at most `block_capacity` turns of each run; return the new state and what became of every update.

        carry: stacked over runs.
        """
        first, count = self.runs[0], np.int32(len(self.runs))
        carry, verdicts = run_blocks(first.model, first.sites.data, carry, self.arrange(blocks), count)
        given = zip(verdicts.tolist(), blocks, strict=True)
        return carry, [[Verdict(verdict) for verdict in each[: len(block)]] for each, block in given]

    def arrange(self, blocks: Sequence[Sequence[PlannedTurn]]) -> Block:
        """Return turns of each run with all that they need, stacked over runs; randomness is drawn here."""
        room = (len(self.runs), self.block_capacity)
        leaves, structure = self._form
        buffers = [np.empty((*room, *leaf.shape), leaf.dtype) for leaf in leaves]
        slots = np.zeros((3, *room), np.int32)
        for place, run, turn in self._places(blocks):
            slots[:, *place] = turn.client, turn.source, turn.save
            for buffer, leaf in zip(buffers, jax.tree.leaves(run.draw(turn.client, turn.update)), strict=True):
                buffer[place] = leaf
        algorithms, public = self._stacked
        draws: Draws = jax.tree.unflatten(structure, buffers)
        count: Any = np.array([len(block) for block in blocks], np.int32)
        return Block(algorithms, public, Turns(*slots), draws, count)

    def _places(self, blocks: Sequence[Sequence[PlannedTurn]]) -> Iterator[tuple[tuple[int, int], Run, PlannedTurn]]:
        for number, (run, block) in enumerate(zip(self.runs, blocks, strict=True)):
            for k, turn in enumerate(block):
                yield (number, k), run, turn

    @functools.cached_property
    def _form(self) -> Any:
        """The arrays of one update's randomness, and their structure."""
        return jax.tree.flatten(self.runs[0].draw(0, 0))

    @functools.cached_property
    def _stacked(self) -> Any:
        """Algorithms and what is public, stacked over runs."""
        return stack([(run.algorithms, run.public) for run in self.runs])


def stack(trees: Sequence[Any]) -> Any:
    """Return pytrees of the same form as one, with a new first axis."""
    return jax.device_put(jax.tree.map(lambda *leaves: np.stack(leaves), *trees))  # nothing to compile

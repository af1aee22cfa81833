"""Makes sites of a federation draw from the streams of a simulation; for test_real_federation.py."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

from loading import change_when_loaded

SEED = 11
SITES = ("north", "south")
numbers = itertools.count(1)


def simulated_source() -> Any:
    """Return the randomness of this process's next update, as the simulation has it."""
    from fedvi.privacy.sampling import UPDATE, Seeded

    site = Path(os.environ["FEDVI_FLARE_FOLDER"]).parent.name
    return Seeded(SEED, UPDATE, SITES.index(site), next(numbers))


def change(module: Any) -> None:
    """Replace the system's source of random words."""
    module.System = simulated_source


if "FEDVI_FLARE_FOLDER" in os.environ:  # in processes of the engine only
    change_when_loaded({"fedvi.privacy.sampling": change})

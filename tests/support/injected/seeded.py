"""Makes sites of a federation draw from the streams of a simulation; for test_real_federation.py."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

from loading import change_when_loaded

SEED = 11
SITES = ("north", "south")
numbers = itertools.count(1)


def simulated_source() -> Any:
    """Return the randomness of this process's next update, as the simulation has it."""
    from fedvi.privacy.sampling import UPDATE, Seeded

    site = Path(sys.argv[sys.argv.index("--folder") + 1]).name
    return Seeded(SEED, UPDATE, SITES.index(site), next(numbers))


def change(module: Any) -> None:
    """Replace the system's source of random words."""
    module.System = simulated_source


change_when_loaded({"fedvi.privacy.sampling": change})

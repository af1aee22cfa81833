"""Names of partitions that come from a sweep, such as "grid[rho=0.5,kappa=-3.0]"."""

from __future__ import annotations


def coordinates(name: str) -> dict[str, float] | None:
    """Return the settings in a cell's name, None when they are not numbers.

    >>> coordinates("grid[rho=0.5,kappa=-3.0]")
    {'rho': 0.5, 'kappa': -3.0}
    >>> coordinates("grid[kind=iid]")
    """
    found = {}
    for part in name[name.index("[") + 1 :].rstrip("]").split(","):
        key, _, value = part.partition("=")
        try:
            found[key.strip()] = float(value)
        except ValueError:
            return None
    return found


def is_cell(name: str) -> bool:
    """Tell whether a partition is one cell of a map: swept over two settings that are numbers."""
    return "[" in name and len(coordinates(name) or ()) == 2

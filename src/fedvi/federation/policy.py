"""What a site allows, whatever a coordinator asks for: the site's own file `policy.toml`.

    kinds = ["student_t:StudentT"]        classes beyond fedvi's own that may be built here: building runs their code

The file is the site's alone: it is never part of a kit. Its classes must be installed, or in a file beside it.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from fedvi.config import PLACE, fill, read_toml, search
from fedvi.errors import InputError

FILE = "policy.toml"


@dataclasses.dataclass(frozen=True)
class Policy:
    """A site's policy; without a file, nothing but fedvi's own kinds."""

    kinds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if not PLACE.fullmatch(kind):
                raise InputError(f'Expected kinds to be like "module:Class", got {kind!r}.')

    @classmethod
    def load(cls, path: Path) -> Policy:
        """Return the policy in a file. Its folder is searched for the modules that it names."""
        try:
            policy = fill(cls, read_toml(path, "the policy of a site"))
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        if policy.kinds:
            search(path.parent)
        return policy

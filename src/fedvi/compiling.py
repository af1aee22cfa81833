"""The one door through which JAX comes: `from fedvi.compiling import jax, jnp`.

Both names stand for JAX without loading it. The first attribute that is asked of them loads it, and registers the
classes that `fedvi.pytree` has made so far. So a module may name JAX at its top and still serve commands that never
need it. XLA's flags (`fedvi.xla`) are set before, when fedvi is imported.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fedvi.pytree import register_waiting

__all__ = ["jax", "jnp"]

SUBMODULES = ("jax.flatten_util", "jax.scipy.linalg", "jax.scipy.special")
"""What `import jax` leaves out and fedvi uses."""


class _Late(ModuleType):
    """A module that is imported when something is asked of it."""

    def __getattr__(self, name: str) -> Any:
        if SUBMODULES[-1] not in sys.modules:
            for each in SUBMODULES:
                importlib.import_module(each)
        register_waiting()
        return getattr(sys.modules[self.__name__], name)


if TYPE_CHECKING:
    import jax
    import jax.flatten_util
    import jax.numpy as jnp
    import jax.scipy.linalg
    import jax.scipy.special
else:
    jax, jnp = _Late("jax"), _Late("jax.numpy")

"""The one door through which JAX comes: `from fedvi.compiling import jax, jnp`.

Both names stand for JAX without loading it. The first attribute that is asked of them loads it, and registers the
classes that `fedvi.pytree` has made so far. So a module may name JAX at its top and still serve commands that never
need it.

XLA compiles loops whole, and once per machine. By default it runs each operation in a loop as a task of its own, which
for operations on a few dozen rows takes longer than the operations. Loops that touch little memory become one function
instead; `compile_loops_whole` moves that limit. It is called when fedvi is imported, and takes effect unless JAX has
compiled something before.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fedvi.pytree import register_waiting

__all__ = ["cache_compilations", "compile_loops_whole", "jax", "jnp"]

SUBMODULES = ("jax.flatten_util", "jax.scipy.linalg", "jax.scipy.special")
"""What `import jax` leaves out and fedvi uses."""


class _Late(ModuleType):
    """A module that is imported when something is asked of it."""

    def __getattr__(self, name: str) -> Any:
        for each in SUBMODULES:
            importlib.import_module(each)
        register_waiting()
        vars(self).update(vars(sys.modules[self.__name__]))  # so that nothing is asked here again
        return getattr(sys.modules[self.__name__], name)


if TYPE_CHECKING:
    import jax
    import jax.flatten_util
    import jax.numpy as jnp
    import jax.scipy.linalg
    import jax.scipy.special
else:
    jax, jnp = _Late("jax"), _Late("jax.numpy")

OPTION = "xla_cpu_small_while_loop_byte_threshold"
LIMIT = 2**40
EXTRA = "--xla_backend_extra_options="


def compile_loops_whole() -> None:
    """Raise XLA's limit for compiling a loop to one function, unless XLA_FLAGS already says something about it.

    XLA_FLAGS with quotes, or with the name of a file, stays as it is.
    """
    text = os.environ.get("XLA_FLAGS", "")
    flags = text.split()
    if OPTION in text or "'" in text or '"' in text or not all(flag.startswith("--") for flag in flags):
        return
    ours = f"{OPTION}={LIMIT}"
    extended = [f"{flag},{ours}" if flag.startswith(EXTRA) else flag for flag in flags]
    os.environ["XLA_FLAGS"] = " ".join(extended if extended != flags else [*flags, EXTRA + ours])


def cache_compilations() -> None:
    """Keep compiled code in the user's cache directory, for the next process; call before JAX is imported.

    JAX_COMPILATION_CACHE_DIR, if set, says where instead; JAX_ENABLE_COMPILATION_CACHE=false switches it off. A whole
    `fedvi reproduce` leaves less than 1 MB.
    """
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ and (directory := cache_directory()) is not None:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(directory)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")


def cache_directory() -> Path | None:
    """Return where compiled code is kept: apart for each kind of processor, since homes may be shared.

    None where there is no home, or nothing can be written to it.
    """
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    directory = base / "fedvi" / f"compiled-{_processor()}"
    there = next((path for path in (directory, *directory.parents) if os.path.exists(path)), None)
    return directory if there is not None and os.access(there, os.W_OK) else None


def _processor() -> str:
    import hashlib
    import platform

    about = platform.machine() + platform.processor()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        about += "".join(sorted({line for line in lines if line.startswith(("flags", "model name", "Features"))}))
    except OSError:
        pass
    return hashlib.sha256(about.encode()).hexdigest()[:12]

"""Errors of tables: where they are, and what libraries say of bad files, in one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from fedvi.errors import InputError

GIVE_ENCODING = "Give its encoding, such as --encoding latin-1 (encoding='latin-1' in Python), or convert it."


def check_once(names: Iterable[str], what: str) -> None:
    """Raise `InputError` for a name that comes twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"Expected every {what} once, got {name!r} twice. Rename one.")
        seen.add(name)


def place(name: str, row: int, column: str) -> str:
    """Return where a value stands, for errors; `row` counts from 0."""
    return f"row {row + 1} of column {column!r} of {name}"


@contextlib.contextmanager
def in_one_line(name: str) -> Iterator[None]:
    """Turn what the libraries raise for bad data and bad files into an `InputError` of one line."""
    import pyarrow as pa

    try:
        yield
    except InputError:
        raise
    except PermissionError:
        raise InputError(f"Expected to be allowed to read {name}, got permission denied.") from None
    except FileNotFoundError:
        raise InputError(f"Expected a table at {name}, got no such file.") from None
    except (OSError, EOFError, UnicodeError, pa.ArrowException) as error:
        raise InputError(f"Expected to read {name}, got: {first_line(error)}.") from None


def first_line(error: BaseException) -> str:
    """Return what an error says, in one line and without a full stop."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).strip()[:300].rstrip(".:")

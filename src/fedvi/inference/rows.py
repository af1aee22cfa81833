"""Clients' rows: checked, laid end to end in one buffer, and scored.

A compiled update depends on the shape of its arguments. With all rows in one buffer, and a client being an offset
and a size, one compiled update serves clients of any size, and no row is copied. A real site is a buffer of one client
(`DeclaredRows`), whose size is public.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from fedvi.checks import LARGEST_FEATURE_BOUND, in_range, whole
from fedvi.compiling import jax, jnp
from fedvi.errors import InputError
from fedvi.families.base import GaussianFamily
from fedvi.models.base import Model
from fedvi.models.finite import line_of, rows_without_number
from fedvi.models.predictive import score
from fedvi.numerics import Array, on_row_grid, row_lengths
from fedvi.privacy.ledger.overlap import rows_digest
from fedvi.privacy.sampling import most_rows
from fedvi.pytree import precision, pytree

Table = tuple[Any, Any]
"""Features (one row per example) and targets of one client, as anything that NumPy can read."""

CheckedTable = tuple[np.ndarray, np.ndarray]
"""The same as finite numbers of the precision in use, with one target per row."""

ALIGNMENT = 64

DEFAULT_FEATURE_BOUND = 64.0
"""Of entries of x where nothing better is known: features should have scales near one."""


@pytree
class Rows:
    """What one client's update may see: rows of the buffer from `offset` on, by number. Who draws batches knows which.

    feature_bound: of entries of x, a power of two, if they are on their grid (`fedvi.numerics`); else 0.
    lengths: of rows on their grid (`row_lengths`).
    """

    x: Float[Array, "rows ..."]
    y: Float[Array, "rows ..."]
    lengths: Float[Array, " rows"]
    feature_bound: Float[Array, ""]
    offset: Int[Array, ""]

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray, feature_bound: float = 0.0, room: int | None = None) -> Rows:
        """Return the rows of one client, in the precision in use, followed by zeros if there is more room.

        feature_bound: if not 0, of rows that are on their grid already.
        """
        x, y = (np.asarray(part, precision()) for part in (x, y))
        return cls(*_buffers([(x, y)], feature_bound, len(x) if room is None else room), jnp.int32(0))


@pytree
class ClientRows(Rows):
    """All clients' rows in one buffer; client m owns rows from `offset[m]` on. The end is nobody's."""

    offset: Int[Array, " m"]

    def rows_of(self, client: Int[Array, ""] | int) -> Rows:
        """Return client number `client`."""
        return Rows(self.x, self.y, self.lengths, self.feature_bound, self.offset[client])


def lay_out(tables: Mapping[str, CheckedTable], feature_bound: float = 0.0) -> ClientRows:
    """Lay the rows of all clients end to end.

    feature_bound: if not 0, of rows that are on their grid already.
    """
    sizes = np.array([len(x) for x, _ in tables.values()])
    room = roomy(int(sizes.sum()))
    if room > np.iinfo(np.int32).max:
        raise InputError(f"Expected fewer than 2^31 rows in total, got {sizes.sum()}.")
    offset = jnp.asarray(np.cumsum(sizes) - sizes, jnp.int32)
    return ClientRows(*_buffers(list(tables.values()), feature_bound, room), offset)


def roomy(rows: int) -> int:
    """Return a little more, from a short list of numbers, so that federations of about the same size share code."""
    step = max(16, min(2 ** (rows.bit_length() - 3), 65_536))
    return math.ceil(rows / step) * step


def _buffers(tables: Sequence[CheckedTable], feature_bound: float, room: int) -> tuple[Array, Array, Array, Array]:
    """Return x, y and lengths of all rows, followed by zeros, and the bound."""
    lengths = [row_lengths(x) if feature_bound else np.zeros(len(x), x.dtype) for x, _ in tables]
    x, y, of_rows = (_end_to_end(parts, room) for parts in (*zip(*tables, strict=True), lengths))
    return x, y, of_rows, jnp.asarray(feature_bound, precision())


def _end_to_end(parts: Sequence[np.ndarray], room: int) -> Array:
    """Return the rows of all parts in one array, followed by zeros. JAX takes aligned memory as it is: one copy."""
    shape, dtype = (room, *parts[0].shape[1:]), parts[0].dtype
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    rows = memory[start : start + size].view(dtype).reshape(shape)
    end = 0
    for part in parts:
        rows[end : end + len(part)] = part
        end += len(part)
    rows[end:] = 0
    return jax.device_put(rows)


def check_tables(clients: Mapping[str, Table] | Sequence[Table], model: Model) -> dict[str, CheckedTable]:
    """Return the clients' tables by name, as arrays of numbers that agree on their columns, or raise `InputError`.

    A plain sequence gets the names 'client 0', 'client 1', ...
    """
    if not isinstance(clients, Mapping | Sequence):
        raise InputError(f"Expected clients as a dictionary or a list of (x, y), got {type(clients).__name__}.")
    if not isinstance(clients, Mapping):
        clients = {f"client {index}": table for index, table in enumerate(clients)}
    if not clients:
        raise InputError("Expected at least one client, got none.")
    checked = {str(name): check_table(table, model, f"client {str(name)!r}") for name, table in clients.items()}
    forms = {
        name: _form(x, y, getattr(given[0], "columns", None))
        for (name, (x, y)), given in zip(checked.items(), clients.values(), strict=True)
    }
    first = next(iter(forms))
    for name, form in forms.items():
        if form != forms[first]:
            raise InputError(f"Clients disagree on columns: {first!r} has {forms[first]}, {name!r} has {form}.")
    return checked


def check_table(table: Table, model: Model, where: str) -> CheckedTable:
    """Return x and y as arrays of numbers, or raise `InputError` naming the place of what is wrong."""
    x, y = _arrays(table, where, _check_finite)
    if len(x) == 0:
        raise InputError(f"Expected at least one row in {where}, got none. Leave it out.")
    return x, model.check(x, y, where)


def evaluate(model: Model, q: GaussianFamily, x: ArrayLike, y: ArrayLike) -> dict[str, float]:
    """Return the scores of the model's predictions for rows x with known y.

    >>> from fedvi import Gaussian, LogisticRegression
    >>> q = Gaussian.from_moments([2.0], [0.1])
    >>> evaluate(LogisticRegression(), q, [[1.0], [-1.0]], [1, -1])["accuracy"]
    1.0
    """
    checked_x, checked_y = check_table((x, y), model, "the rows to evaluate")
    return score(model, q, jnp.asarray(checked_x), jnp.asarray(checked_y))


@dataclasses.dataclass(frozen=True)
class DeclaredRows:
    """A client's rows as private updates see them: on their grid, in a buffer whose size follows from `public`.

    count: the true number of rows, which never leaves. public: the declared one.
    digest: of the rows as they came. noticed: what was done to them.
    """

    rows: Rows
    count: int
    public: int
    digest: str
    noticed: tuple[str, ...]

    @classmethod
    def of(cls, table: Table, model: Model, feature_bound: float, declared: Callable[[int], int]) -> DeclaredRows:
        """Return the rows of a table. Nothing is refused because of what a row holds: it counts as nothing instead.

        What is wrong with all rows alike, such as their number of columns, is refused.
        declared: from the true number of rows to the declared one.
        """
        check_feature_bound(feature_bound)
        x, y = _arrays(table, "the client's table")
        model.check_form(x, y, "the client's table")
        y = model.targets(y)
        finite = [np.isfinite(part).all(axis=tuple(range(1, part.ndim))) for part in (x, y)]
        good = finite[0] & finite[1] & model.usable(y)
        if not good.all():
            x, y = x[good], y[good]
        data, public, left_out = rows_digest(x, y), declared(len(x)), len(good) - len(x)
        whole("public_rows", public, 1)
        most = most_rows(public)
        if len(x) > most:
            raise InputError(
                f"Expected at most {most} rows for {public} declared ones, got more. Declare about as many as there "
                "are."
            )
        features, clipped = on_row_grid(x, feature_bound)
        told = [f"{left_out} rows hold what is no number, or a foreign label: they count as nothing"] * (left_out > 0)
        told += [f"{clipped} features are beyond {feature_bound:g} and count as that"] * (clipped > 0)
        return cls(Rows.of(features, y, feature_bound, roomy(most)), len(x), public, data, tuple(told))

    def noticed_by(self, model: Model, prior: GaussianFamily) -> tuple[str, ...]:
        """Return what was done to the rows, and for how many the model gives NaN under the prior, for their people."""
        if not len(bad := rows_without_number(model, prior, *self.table)):
            return self.noticed
        line = line_of(model, prior, *(part[bad[:1]] for part in self.table))
        told = f"the model gives no number for {len(bad)} rows under the prior: they count as nothing in such updates"
        return (*self.noticed, told + (f" ({line})" if line else ""))

    @property
    def table(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows themselves."""
        return np.asarray(self.rows.x)[: self.count], np.asarray(self.rows.y)[: self.count]


def check_feature_bound(bound: float) -> None:
    """Raise unless this may be the bound of features."""
    in_range("feature_bound", bound, 2.0**-20, LARGEST_FEATURE_BOUND)
    if math.frexp(bound)[0] != 0.5:
        raise InputError(f"Expected feature_bound to be a power of two, got {bound:g}.")


def _form(x: np.ndarray, y: np.ndarray, columns: Any) -> str:
    """Return what clients must agree on, for people to read; data frames must agree on names and order too."""
    names = "" if columns is None else f" with columns {list(columns)}"
    return f"x of {x.shape[1:]} per row{names} and y of {y.shape[1:]} per row"


def _arrays(table: Table, where: str, check: Callable[[np.ndarray, str], None] | None = None) -> CheckedTable:
    """Return x and y as arrays of numbers with as many rows; check: of either, with its name."""
    try:
        x, y = table
    except (TypeError, ValueError):
        raise InputError(f"Expected a pair (x, y) for {where}, got {type(table).__name__}.") from None
    arrays = []
    for values, name in ((x, f"x of {where}"), (y, f"y of {where}")):
        try:
            array = np.asarray(values)
        except ValueError as error:
            raise InputError(f"Expected rows of equal length in {name}: {error}") from None
        if array.dtype.kind not in "fiub":
            raise InputError(
                f"Expected numbers in {name}, got dtype {array.dtype}. Encode or convert the columns first."
            )
        with np.errstate(over="ignore"):
            arrays.append(array.astype(precision(), copy=False))
        if check is not None:
            check(arrays[-1], name)
    x, y = arrays
    if x.ndim < 2:
        raise InputError(f"Expected x of {where} to have rows and columns, got shape {x.shape}.")
    if y.ndim < 1 or len(x) != len(y):
        raise InputError(f"Expected one y per row of x in {where}, got {x.shape} and {y.shape}.")
    return x, y


def _check_finite(array: np.ndarray, where: str) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        sound = np.isfinite(np.sum(array))  # takes no memory; a sum that overflows is looked at more closely
    bad = np.argwhere(~np.isfinite(array)) if not sound else np.zeros(0)
    if bad.size:
        row, *column = bad[0]
        place = f"row {row}" + (f", column {column[0]}" if column else "")
        raise InputError(
            f"Expected finite {array.dtype} numbers in {where}, got {array[tuple(bad[0])]} in {place} "
            f"({len(bad)} such values). Fill or drop them."
        )

"""Clients' rows, checked and laid end to end in one buffer.

A compiled update depends on the shape of its arguments. With all rows in one buffer, and a client being an offset
and a size, one compiled update serves clients of any size, and no row is copied. A real site is a buffer of one client.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from fedvi.errors import InputError
from fedvi.pytree import precision, pytree

if TYPE_CHECKING:
    from fedvi.models import Model

Table = tuple[Any, Any]
"""Features (one row per example) and targets of one client, as anything that NumPy can read."""

CheckedTable = tuple[np.ndarray, np.ndarray]
"""The same as finite numbers of the precision in use, with one target per row."""


ALIGNMENT = 64


@pytree
class Site:
    """What one client's update may see: `size` rows of the buffer, from `offset` on."""

    x: Float[Array, "rows ..."]
    y: Float[Array, "rows ..."]
    offset: Int[Array, ""]
    size: Int[Array, ""]


@pytree
class Clients:
    """All clients' rows in one buffer; client m owns `size[m]` rows from `offset[m]` on. The end is nobody's."""

    x: Float[Array, "rows ..."]
    y: Float[Array, "rows ..."]
    offset: Int[Array, " m"]
    size: Int[Array, " m"]

    def site(self, client: Any) -> Site:
        """Return client number `client`."""
        return Site(self.x, self.y, self.offset[client], self.size[client])


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
    try:
        given_x, given_y = table
    except (TypeError, ValueError):
        raise InputError(f"Expected a pair (x, y) for {where}, got {type(table).__name__}.") from None
    x, y = _numbers(given_x, f"x of {where}"), _numbers(given_y, f"y of {where}")
    if x.ndim < 2:
        raise InputError(f"Expected x of {where} to have rows and columns, got shape {x.shape}.")
    if y.ndim < 1 or len(x) != len(y):
        raise InputError(f"Expected one y per row of x in {where}, got {x.shape} and {y.shape}.")
    if len(x) == 0:
        raise InputError(f"Expected at least one row in {where}, got none. Leave it out.")
    model.check_rows(x, y, where)
    return x, y


def lay_out(tables: Mapping[str, CheckedTable]) -> Clients:
    """Lay the rows of all clients end to end."""
    sizes = np.array([len(x) for x, _ in tables.values()])
    room = roomy(int(sizes.sum()))
    if room > np.iinfo(np.int32).max:
        raise InputError(f"Expected fewer than 2^31 rows in total, got {sizes.sum()}.")
    return Clients(
        x=_end_to_end([x for x, _ in tables.values()], room),
        y=_end_to_end([y for _, y in tables.values()], room),
        offset=jnp.asarray(np.cumsum(sizes) - sizes, jnp.int32),
        size=jnp.asarray(sizes, jnp.int32),
    )


def roomy(rows: int) -> int:
    """Return a little more, from a short list of numbers, so that federations of about the same size share code."""
    step = max(16, min(2 ** (rows.bit_length() - 3), 65_536))
    return math.ceil(rows / step) * step


def _end_to_end(parts: list[np.ndarray], room: int) -> jax.Array:
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


def _form(x: np.ndarray, y: np.ndarray, columns: Any) -> str:
    """Return what clients must agree on, for people to read; data frames must agree on names and order too."""
    names = "" if columns is None else f" with columns {list(columns)}"
    return f"x of {x.shape[1:]} per row{names} and y of {y.shape[1:]} per row"


def _numbers(values: Any, where: str) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"Expected rows of equal length in {where}: {error}") from None
    if array.dtype.kind not in "fiub":
        raise InputError(f"Expected numbers in {where}, got dtype {array.dtype}. Encode or convert the columns first.")
    dtype = precision()
    with np.errstate(over="ignore"):
        array = array.astype(dtype, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        sound = np.isfinite(np.sum(array))  # takes no memory; a sum that overflows is looked at more closely
    bad = np.argwhere(~np.isfinite(array)) if not sound else np.zeros(0)
    if bad.size:
        row, *column = bad[0]
        place = f"row {row}" + (f", column {column[0]}" if column else "")
        raise InputError(
            f"Expected finite {dtype} numbers in {where}, got {array[tuple(bad[0])]} in {place} "
            f"({len(bad)} such values). Fill or drop them."
        )
    return array

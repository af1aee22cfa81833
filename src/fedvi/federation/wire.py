"""What goes over the wire: versioned, bounded, self-describing bytes of arrays and plain values. Never pickle.

    b"fedvi" | version, 1 byte | SHA-256 of the rest, 32 bytes | safetensors: arrays, and a JSON header as bytes

`Request` is what a site sends, `Answer` what it gets. Whatever does not decode to exactly one of them is refused with
`MalformedRelease`, before anything is done with it. The hash is for accidents; who sent it, the engine's certificates
say.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import types
from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np

from fedvi.compiling import jax, jnp
from fedvi.errors import MalformedRelease

MAGIC = b"fedvi"
VERSION = 1
HEADER = "header"
LARGEST_HEADER = 1 << 16
LONGEST_TEXT = 4096
MOST_EVENTS = 64
DTYPES = {"F32": np.float32, "F64": np.float64}

POLL, FACTOR, WIDTH = "poll", "factor", "width"
WORKING, PAUSED, SPENT, FINISHED, LEFT = "working", "paused", "spent", "finished", "left"
POSTERIOR, REFUSED = "posterior", "refused"

Arrays = Mapping[str, np.ndarray]
Tree = TypeVar("Tree")


@dataclasses.dataclass(frozen=True)
class Declared:
    """What a site says about itself, for people to see. Nobody can check it, and no promise rests on it.

    The width of an exported posterior does a little: `fedvi.federation.widths` says how far a site can move it.

    events: what was released, as in the site's ledger, with counts.
    """

    rows: int
    epsilon: float
    epsilon_max: float
    delta: float
    events: tuple[dict[str, Any], ...] = ()


@dataclasses.dataclass(frozen=True)
class Request:
    """What a site sends.

    federation: the project that it believes to be part of.
    kind: `poll` asks for the posterior; `factor` and `width` are releases.
    sequence: of the release, 1 for the first; of a poll, that of the last one.
    based_on: version of q that the release was computed from.
    state: what the site is doing: working, paused, spent, finished or left.
    """

    federation: str
    schema: str
    kind: str
    sequence: int
    based_on: int
    state: str
    declared: Declared
    arrays: Arrays = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        _require(self.kind in (POLL, FACTOR, WIDTH), f"kind {self.kind!r}")
        _require(self.state in (WORKING, PAUSED, SPENT, FINISHED, LEFT), f"state {self.state!r}")
        _require(0 <= self.sequence < 2**31, f"sequence {self.sequence}")
        _require(0 <= self.based_on < 2**31, f"based_on {self.based_on}")
        said = self.declared
        _require(0 <= said.rows < 2**53, f"rows {said.rows}")
        _require(said.epsilon >= 0 and 1e-6 <= said.epsilon_max <= 1e6, f"epsilon {said.epsilon} of {said.epsilon_max}")
        _require(0 < said.delta < 1, f"delta {said.delta}")
        _require(len(said.events) <= MOST_EVENTS, f"{len(said.events)} events")


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a site gets.

    kind: `posterior` with q as arrays, or `refused` with a reason.
    version: how many updates q has seen. applied: the last release of this site that was applied.
    stop: why the federation has ended; empty while it goes on.
    error: name of the exception that a refusal is; empty otherwise.
    """

    federation: str
    kind: str
    version: int
    applied: int
    stop: str = ""
    error: str = ""
    reason: str = ""
    arrays: Arrays = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        _require(self.kind in (POSTERIOR, REFUSED), f"kind {self.kind!r}")
        _require(0 <= self.version < 2**31, f"version {self.version}")
        _require(0 <= self.applied < 2**31, f"applied {self.applied}")


def encode(message: Request | Answer) -> bytes:
    """Return the bytes of a message."""
    from safetensors.numpy import save

    fields = {field.name: getattr(message, field.name) for field in dataclasses.fields(message)}
    arrays = {name: np.asarray(array, order="C") for name, array in fields.pop("arrays").items()}
    plain = {
        name: dataclasses.asdict(value) if isinstance(value, Declared) else value for name, value in fields.items()
    }
    header = json.dumps(plain, allow_nan=False).encode()
    body = save({HEADER: np.frombuffer(header, np.uint8), **arrays})
    return MAGIC + bytes([VERSION]) + hashlib.sha256(body).digest() + body


def decode(data: bytes, kind: type[Tree], largest: int) -> Tree:
    """Return the message of this kind in bytes that anybody may have sent, or raise `MalformedRelease`.

    largest: bytes that its arrays may have.
    """
    header, arrays = _unpack(data, largest + LARGEST_HEADER)
    try:
        message: Any = _build(kind, {**header, "arrays": arrays})
    except MalformedRelease:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise MalformedRelease(f"Expected a {kind.__name__.lower()} of fedvi, got one that says {error}.") from None
    return message


def digest(data: bytes) -> str:
    """Return what identifies a message."""
    return hashlib.sha256(data).hexdigest()


def arrays_of(tree: Any) -> dict[str, np.ndarray]:
    """Return the leaves of a pytree by number."""
    return {str(number): np.asarray(leaf) for number, leaf in enumerate(jax.tree.leaves(tree))}


def tree_of(template: Tree, arrays: Arrays) -> Tree:
    """Return arrays as a pytree like `template`, or raise `MalformedRelease` if number, shapes or types differ."""
    leaves, structure = jax.tree.flatten(template)
    wanted = {str(number): (np.dtype(jnp.result_type(leaf)), np.shape(leaf)) for number, leaf in enumerate(leaves)}
    given = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    if wanted != given:
        raise MalformedRelease(f"Expected arrays {_shown(wanted)}, got {_shown(given)}.")
    return jax.tree.unflatten(structure, [jnp.asarray(arrays[name]) for name in wanted])


def size_of(template: Any) -> int:
    """Return how many bytes a pytree's arrays have, and what describes them."""
    return sum(np.asarray(leaf).nbytes + 256 for leaf in jax.tree.leaves(template))


def pack(tree: Any) -> bytes:
    """Return a pytree of arrays of any type as bytes, for a file of one's own."""
    from safetensors.numpy import save

    return save({name: np.asarray(array, order="C") for name, array in arrays_of(tree).items()})


def unpack(template: Tree, data: bytes) -> Tree:
    """Return the pytree that `pack` wrote."""
    from safetensors.numpy import load

    return tree_of(template, load(data))


def _unpack(data: bytes, largest: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    from safetensors import SafetensorError, deserialize

    start = len(MAGIC) + 1 + hashlib.sha256().digest_size
    if not isinstance(data, bytes | bytearray | memoryview):
        raise MalformedRelease(f"Expected bytes, got {type(data).__name__}.")
    if memoryview(data).nbytes > largest:
        raise MalformedRelease(f"Expected at most {largest} bytes, got {memoryview(data).nbytes}.")
    data = bytes(data)
    if len(data) < start or data[: len(MAGIC)] != MAGIC:
        raise MalformedRelease(f"Expected a message of fedvi, got {len(data)} bytes that are none.")
    if data[len(MAGIC)] != VERSION:
        raise MalformedRelease(
            f"Expected version {VERSION} of the wire format, got {data[len(MAGIC)]}. Install the same fedvi everywhere."
        )
    body = data[start:]
    if hashlib.sha256(body).digest() != data[len(MAGIC) + 1 : start]:
        raise MalformedRelease("Expected a whole message, got one that was damaged on its way.")
    try:
        parts = dict(deserialize(body))
        text = bytes(parts.pop(HEADER)["data"])
        arrays = {name: _array(part) for name, part in parts.items()}
        if len(text) > LARGEST_HEADER:
            raise MalformedRelease(f"Expected a header of at most {LARGEST_HEADER} bytes, got {len(text)}.")
        header = json.loads(text.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_once)
    except MalformedRelease:
        raise
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError, OverflowError) as error:
        raise MalformedRelease(f"Expected arrays and a header, got something else: {str(error)[:200]}.") from None
    _require(isinstance(header, dict), "no header")
    _require("arrays" not in header, "arrays in its header")
    return header, arrays


def _array(part: dict[str, Any]) -> np.ndarray:
    if part["dtype"] not in DTYPES:
        raise MalformedRelease(f"Expected arrays of type {' or '.join(DTYPES)}, got {part['dtype']}.")
    return np.frombuffer(part["data"], DTYPES[part["dtype"]]).reshape(part["shape"])


def _no_constant(name: str) -> float:
    raise MalformedRelease(f"Expected finite numbers in the header, got {name}.")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of the header, in which no key may come twice: readers differ in which one they take."""
    table = dict(pairs)
    _require(len(table) == len(pairs), "a key that comes twice")
    return table


def _build(kind: Any, values: dict[str, Any]) -> Any:
    """Return a dataclass from plain values of exactly its fields and types."""
    types_of = get_type_hints(kind)
    if set(values) != set(types_of):
        raise MalformedRelease(f"Expected the fields {', '.join(types_of)}, got {', '.join(values)[:200]!r}.")
    return kind(**{name: _value(types_of[name], value, name) for name, value in values.items()})


def _value(wanted: Any, value: Any, name: str) -> Any:
    if wanted is Declared:
        _require(isinstance(value, dict), f"{name} {value!r}")
        return _build(Declared, value)
    if wanted is int and type(value) is int:
        return value
    if wanted is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if wanted is str and type(value) is str and len(value) <= LONGEST_TEXT and value.isprintable():
        return value
    if getattr(wanted, "__origin__", None) is tuple and type(value) is list:
        return tuple(_event(item) for item in value)
    if name == "arrays":
        return types.MappingProxyType(value)
    shown = getattr(wanted, "__name__", get_args(wanted))
    raise MalformedRelease(f"Expected {name} to be {shown}, got {str(value)[:80]!r}.")


def _event(item: Any) -> dict[str, Any]:
    """Return one event: a flat table of texts and finite numbers."""
    _require(type(item) is dict and len(item) <= 16, f"the event {str(item)[:80]!r}")
    for key, value in item.items():
        _require(key.isprintable(), f"the key {key[:80]!r} in an event")
        fine = (type(value) in (int, float) and math.isfinite(value)) or (type(value) is str and value.isprintable())
        _require(fine, f"{str(value)[:80]!r} in an event")
    return dict(item)


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise MalformedRelease(f"Expected a message of fedvi, got one with {what[:200]}.")


def _shown(forms: Mapping[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{dtype}{list(shape)}" for dtype, shape in list(forms.values())[:8]) or "none"

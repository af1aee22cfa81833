"""What goes over the wire: versioned, bounded, self-describing bytes of arrays and plain values. Never pickle.

    b"fedvi" | version, 1 byte | SHA-256 of the rest, 32 bytes | safetensors: arrays, and a JSON header as bytes

`Request` is what a site sends, `Answer` what it gets. Their annotations are the rules. Whatever does not decode to
exactly one of them is refused with `MalformedRelease`, before anything is done with it. The hash is for accidents; who
sent it, the envelope says (`fedvi.federation.envelope`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from fedvi.errors import AbsurdRelease, ImproperRelease, MalformedRelease, NonFiniteRelease, ReleaseRefused
from fedvi.pytree import leaves, tree_map

MAGIC = b"fedvi"
VERSION = 4
HEADER = "header"
LARGEST_HEADER = 1 << 16
LONGEST_TEXT = 4096
MOST_EVENTS = 64
DTYPES = {"F32": np.float32, "F64": np.float64}

LONGEST_NUMBER = 300

POLL, FACTOR = "poll", "factor"
WORKING, PAUSED, SPENT, FINISHED, LEFT = "working", "paused", "spent", "finished", "left"
QUESTION, WAIT, REFUSED = "question", "wait", "refused"
UNAVAILABLE = "unavailable"
"""Code of an answer that is no refusal: the coordinator cannot answer now, such as on a full disk."""

REFUSALS = frozenset([ReleaseRefused.code, *(kind.code for kind in ReleaseRefused.__subclasses__())])
HARMLESS = frozenset((NonFiniteRelease.code, AbsurdRelease.code, ImproperRelease.code))
"""Codes of all refusals, and of those of one release, after which another may be accepted."""

Arrays = Mapping[str, np.ndarray]
Tree = TypeVar("Tree")
Message = TypeVar("Message", bound=msgspec.Struct)
Count = Annotated[int, Meta(ge=0, lt=2**31)]
Event = Annotated[dict[str, str | int | float], Meta(max_length=16)]


def one_of(*words: str) -> Meta:
    """Return the rule that a text is one of these words."""
    return Meta(pattern=rf"^({'|'.join(words)})\Z")


class Declared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a site says about itself, for people to see. Nobody can check it, and no promise rests on it.

    events: what was released, as in the site's ledger, with counts.
    """

    rows: Annotated[int, Meta(ge=0, lt=2**53)]
    epsilon: Annotated[float, Meta(ge=0)]
    epsilon_max: Annotated[float, Meta(ge=1e-6, le=1e6)]
    delta: Annotated[float, Meta(gt=0, lt=1)]
    events: Annotated[tuple[Event, ...], Meta(max_length=MOST_EVENTS)]


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a site sends.

    federation: digest of the description that it has.
    kind: `poll` asks for the next question; `factor` is a release: all answers of the site so far.
    sequence: of the release, which is the number of the question that it answers; of a poll, that of the last one.
    state: what the site is doing.
    """

    federation: str
    schema: str
    kind: Annotated[str, one_of(POLL, FACTOR)]
    sequence: Count
    state: Annotated[str, one_of(WORKING, PAUSED, SPENT, FINISHED, LEFT)]
    declared: Declared
    arrays: Mapping[str, Any] = {}


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a site gets.

    kind: `question` with the site's next question as arrays, `wait` if it was not asked yet, or `refused` with a
        reason.
    version: how many answers the coordinator has. applied: the last release of this site that was applied.
    stop: why the federation has ended; empty while it goes on.
    code: of `REFUSALS` or `unavailable`; empty otherwise. news: what people at the site should know.
    """

    federation: str
    kind: Annotated[str, one_of(QUESTION, WAIT, REFUSED)]
    version: Count
    applied: Count
    stop: str = ""
    code: str = ""
    reason: str = ""
    news: str = ""
    arrays: Mapping[str, Any] = {}


def encode(message: Request | Answer) -> bytes:
    """Return the bytes of a message."""
    from safetensors.numpy import save

    arrays = {name: np.asarray(array, order="C") for name, array in message.arrays.items()}
    plain = msgspec.to_builtins(msgspec.structs.replace(message, arrays={}))
    del plain["arrays"]
    header = json.dumps(plain, allow_nan=False).encode()
    body = save({HEADER: np.frombuffer(header, np.uint8), **arrays})
    return MAGIC + bytes([VERSION]) + hashlib.sha256(body).digest() + body


def decode(data: bytes, kind: type[Message], largest: int) -> Message:
    """Return the message of this kind in bytes that anybody may have sent, or raise `MalformedRelease`.

    largest: bytes that its arrays may have.
    """
    header, arrays = _unpack(data, largest + LARGEST_HEADER)
    try:
        message: Message = msgspec.convert({**header, "arrays": arrays}, kind)
    except (msgspec.ValidationError, OverflowError) as error:
        raise MalformedRelease(f"Expected a {kind.__name__.lower()} of fedvi, got: {str(error)[:200]}.") from None
    _require({*header, "arrays"} == set(kind.__struct_fields__), "too few fields")
    return message


def arrays_of(tree: Any) -> dict[str, np.ndarray]:
    """Return the leaves of a pytree by number."""
    return {str(number): np.asarray(leaf) for number, leaf in enumerate(leaves(tree))}


def tree_of(template: Tree, arrays: Arrays) -> Tree:
    """Return arrays as a pytree like `template`, or raise `MalformedRelease` if number, shapes or types differ."""
    wanted = arrays_of(template)
    if _forms(wanted) != _forms(arrays):
        raise MalformedRelease(f"Expected arrays {_shown(wanted)}, got {_shown(arrays)}.")
    names = iter(wanted)
    return tree_map(lambda _: arrays[next(names)], template)


def size_of(template: Any) -> int:
    """Return how many bytes a pytree's arrays have, and what describes them."""
    return sum(np.asarray(leaf).nbytes + 256 for leaf in leaves(template))


def pack(tree: Any) -> bytes:
    """Return a pytree of arrays of any type as bytes, for a file of one's own."""
    from safetensors.numpy import save

    return save({name: np.asarray(array, order="C") for name, array in arrays_of(tree).items()})


def unpack(template: Tree, data: bytes) -> Tree:
    """Return the pytree that `pack` wrote."""
    from safetensors.numpy import load

    return tree_of(template, load(data))


def printable(error: Exception) -> str:
    """Return the text of an error without what no terminal or message can show."""
    return "".join(filter(str.isprintable, str(error)))[:2000]


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
        header = json.loads(
            text.decode("utf-8"), parse_constant=_number, parse_float=_number, parse_int=_whole, object_pairs_hook=_once
        )
        _check_texts(header)
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


def _number(text: str) -> float:
    number = float(text)
    _require(math.isfinite(number), f"the number {text[:80]}")
    return number


def _whole(text: str) -> int:
    _require(len(text) <= LONGEST_NUMBER, f"a number of {len(text)} digits")
    return int(text)


def _check_texts(value: Any) -> None:
    """Raise unless all texts are printable and not too long."""
    if isinstance(value, str):
        _require(len(value) <= LONGEST_TEXT and value.isprintable(), f"the text {value[:80]!r}")
    elif isinstance(value, dict | list):
        for each in value:
            _check_texts(each)
        for each in value.values() if isinstance(value, dict) else ():
            _check_texts(each)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of the header, in which no key may come twice: readers differ in which one they take."""
    table = dict(pairs)
    _require(len(table) == len(pairs), "a key that comes twice")
    return table


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise MalformedRelease(f"Expected a message of fedvi, got one with {what[:200]}.")


def _forms(arrays: Arrays) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    return {name: (array.dtype, array.shape) for name, array in arrays.items()}


def _shown(arrays: Arrays) -> str:
    return ", ".join(f"{dtype}{list(shape)}" for dtype, shape in list(_forms(arrays).values())[:8]) or "none"

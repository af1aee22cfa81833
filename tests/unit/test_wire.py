"""What anybody may send decodes to exactly one message of ours, or is refused; nothing else can happen."""

from __future__ import annotations

import hashlib
import json
import struct
import time
import tracemalloc
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedvi.errors import MalformedRelease
from fedvi.families import Gaussian
from fedvi.federation import wire
from fedvi.federation.wire import Answer, Declared, Request, decode, encode

ROOM = 1 << 16
START = len(wire.MAGIC) + 1 + 32


def arrays_strategy() -> st.SearchStrategy[Mapping[str, np.ndarray]]:
    some = hnp.arrays(st.sampled_from([np.float32, np.float64]), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
    return st.dictionaries(st.text(max_size=5).filter(lambda name: name not in (wire.HEADER, "__metadata__")), some)


texts = st.text(max_size=30).filter(str.isprintable)
whole = st.integers(0, 2**31 - 1)
finite = st.floats(allow_nan=False, allow_infinity=False)
events = st.dictionaries(texts, finite | st.integers(-(2**70), 2**70) | texts, max_size=16)
declared = st.builds(
    Declared,
    st.integers(0, 2**53 - 1),
    st.floats(0, 1e300),
    st.floats(1e-6, 1e6),
    st.floats(1e-300, 0.999),
    st.lists(events, max_size=4).map(tuple),
)
requests = st.builds(
    Request,
    texts,
    texts,
    st.sampled_from([wire.POLL, wire.FACTOR]),
    whole,
    st.sampled_from([wire.WORKING, wire.PAUSED, wire.SPENT, wire.FINISHED, wire.LEFT]),
    declared,
    arrays_strategy(),
)
answers = st.builds(
    Answer,
    texts,
    st.sampled_from([wire.QUESTION, wire.WAIT, wire.REFUSED]),
    whole,
    whole,
    texts,
    texts,
    texts,
    texts,
    arrays_strategy(),
)
messages = requests | answers


def same(one: Any, other: Any) -> bool:
    """Compare messages; NaN equals NaN, and bits count: zero has a sign."""
    if type(one) is not type(other) or set(one.arrays) != set(other.arrays):
        return False
    plain = all(
        getattr(one, field.name) == getattr(other, field.name)
        for field in msgspec.structs.fields(type(one))
        if field.name != "arrays"
    )
    form = [(array.dtype, array.shape, array.tobytes()) for array in one.arrays.values()]
    return plain and form == [(a.dtype, a.shape, a.tobytes()) for a in (other.arrays[name] for name in one.arrays)]


def signed(body: bytes, version: int = wire.VERSION) -> bytes:
    """Return the body with a correct hash, so that an attack gets past the check for accidents."""
    return wire.MAGIC + bytes([version]) + hashlib.sha256(body).digest() + body


def tensors(entries: Mapping[str, Any], data: bytes) -> bytes:
    """Return safetensors with whatever description of the data."""
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + data


def with_header(header: bytes, beside: Mapping[str, Any] | None = None, data: bytes = b"") -> bytes:
    whole_header = {"dtype": "U8", "shape": [len(header)], "data_offsets": [0, len(header)]}
    return signed(tensors({wire.HEADER: whole_header, **(beside or {})}, header + data))


ANSWER = {"federation": "f", "kind": "question", "version": 3, "applied": 1}
ANSWER |= {"stop": "", "code": "", "reason": "", "news": ""}
DECLARED = {"rows": 9, "epsilon": 0.5, "epsilon_max": 1.0, "delta": 1e-3, "events": [{"kind": "gaussian", "count": 2}]}
REQUEST = {
    "federation": "f",
    "schema": "s",
    "kind": "poll",
    "sequence": 1,
    "state": "working",
    "declared": DECLARED,
}


def refused_or_equal(data: bytes, kind: type = Answer, room: int = ROOM) -> bool:
    """The law: `MalformedRelease`, or a message that comes back equal. Returns whether it was decoded."""
    try:
        message: Any = decode(data, kind, room)
    except MalformedRelease as refusal:
        if len(str(refusal)) > 2000:
            raise AssertionError("a refusal repeats what it refuses") from refusal
        return False
    assert same(decode(encode(message), kind, 1 << 30), message)
    return True


@given(messages)
def test_a_message_survives_the_wire(message: Any) -> None:
    back = decode(encode(message), type(message), 1 << 30)
    assert same(back, message)
    assert encode(back) == encode(message)


@given(messages)
def test_a_message_is_not_taken_for_one_of_the_other_kind(message: Any) -> None:
    with pytest.raises(MalformedRelease):
        decode(encode(message), Answer if isinstance(message, Request) else Request, 1 << 30)


@settings(max_examples=200)
@given(st.binary(max_size=400), st.booleans(), st.booleans())
def test_random_bytes_are_refused(data: bytes, marked: bool, hashed: bool) -> None:
    data = signed(data) if hashed else wire.MAGIC + data if marked else data
    with pytest.raises(MalformedRelease):
        decode(data, Request, ROOM)


@given(messages, st.data())
def test_a_damaged_message_is_refused(message: Any, data: st.DataObject) -> None:
    sent = encode(message)
    cut = data.draw(st.integers(0, len(sent) - 1))
    bit = data.draw(st.integers(0, 8 * len(sent) - 1))
    flipped = bytearray(sent)
    flipped[bit // 8] ^= 1 << bit % 8
    for damaged in (sent[:cut], bytes(flipped), sent + b"\0"):
        with pytest.raises(MalformedRelease):
            decode(damaged, type(message), 1 << 30)


@settings(max_examples=400)
@given(messages, st.data())
def test_a_forged_message_with_a_correct_hash_is_refused_or_means_what_it_says(
    message: Any, data: st.DataObject
) -> None:
    """Mutations of the tensors and of the header within, with the hash made good: the attack of somebody who can."""
    body = bytearray(encode(message)[START:])
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(body) - 1))
        match data.draw(st.sampled_from(["flip", "set", "cut", "insert", "repeat"])):
            case "flip":
                body[at] ^= 1 << data.draw(st.integers(0, 7))
            case "set":
                body[at] = data.draw(st.sampled_from(b'\0\xff"{}[],:0123456789-eE.tfn\\'))
            case "cut":
                del body[at : at + data.draw(st.integers(1, 9))]
            case "insert":
                body[at:at] = data.draw(st.binary(max_size=9))
            case _:
                body[at:at] = body[at : at + data.draw(st.integers(1, 40))]
        if not body:
            break
    refused_or_equal(signed(bytes(body)), type(message), 1 << 20)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.text(max_size=5)
    | st.integers(-(2**40), 2**40)
    | st.sampled_from([10**400, -1, 2**31, 2**31 - 1, 2**63, 1e308, "poll", "factor", "working", "question"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=400)
@given(st.sampled_from([Answer, Request]), st.data())
def test_a_header_of_any_other_values_is_refused_or_means_what_it_says(kind: type, data: st.DataObject) -> None:
    header: dict[str, Any] = dict(ANSWER if kind is Answer else REQUEST)
    for _ in range(data.draw(st.integers(1, 3))):
        key = data.draw(st.sampled_from([*header, "declared", "arrays", "extra"]))
        match data.draw(st.sampled_from(["set", "drop", "declared"])):
            case "set":
                header[key] = data.draw(json_values)
            case "drop":
                header.pop(key, None)
            case _:
                inner = data.draw(st.sampled_from([*DECLARED, "extra"]))
                header["declared"] = {**DECLARED, inner: data.draw(json_values)}
    refused_or_equal(with_header(json.dumps(header).encode()), kind)


def test_the_forged_messages_are_decoded_where_nothing_is_wrong() -> None:
    """Or else the tests of refusals in this file would prove nothing."""
    assert refused_or_equal(with_header(json.dumps(ANSWER).encode()))
    assert refused_or_equal(with_header(json.dumps(REQUEST).encode()), Request)
    number = {
        "a": {"dtype": "F32", "shape": [1], "data_offsets": [len(json.dumps(ANSWER)), len(json.dumps(ANSWER)) + 4]}
    }
    assert refused_or_equal(with_header(json.dumps(ANSWER).encode(), number, b"\0\0\x80\x7f"))


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({**ANSWER, "version": True}),
        json.dumps({**ANSWER, "version": 1.0}),
        json.dumps({**ANSWER, "version": "1"}),
        json.dumps({**ANSWER, "version": -1}),
        json.dumps({**ANSWER, "version": 2**31}),
        json.dumps({**ANSWER, "applied": None}),
        json.dumps({**ANSWER, "kind": "poll"}),
        json.dumps({**ANSWER, "more": 1}),
        json.dumps({**ANSWER, "arrays": {}}),
        json.dumps({**ANSWER, "reason": "\x1b[2J"}),
        json.dumps({**ANSWER, "reason": "two\nlines"}),
        json.dumps({**ANSWER, "reason": "\u202e"}),
        json.dumps({**ANSWER, "reason": "\ud800"}),
        json.dumps({**ANSWER, "reason": "x" * (wire.LONGEST_TEXT + 1)}),
        json.dumps({key: ANSWER[key] for key in ANSWER if key != "stop"}),
        json.dumps(ANSWER)[:-1] + ', "version": 4}',
        json.dumps(ANSWER).replace("3", "NaN"),
        json.dumps(ANSWER).replace("3", "9" * 5000),
        json.dumps([ANSWER]),
        json.dumps(ANSWER) + json.dumps(ANSWER),
        "[" * 30_000,
        '{"a":' * 10_000,
        "",
        "null",
        '"federation"',
    ],
    ids=lambda text: text[-45:],
)
def test_a_header_of_an_answer_has_exactly_its_fields_and_types(text: str) -> None:
    with pytest.raises(MalformedRelease):
        decode(with_header(text.encode()), Answer, ROOM)


@pytest.mark.parametrize(
    "change",
    [
        {"rows": True},
        {"rows": -1},
        {"rows": 2**53},
        {"rows": 1.5},
        {"epsilon": "1"},
        {"epsilon": False},
        {"epsilon": 10**400},
        {"epsilon": None},
        {"epsilon": -0.1},
        {"epsilon_max": 0},
        {"epsilon_max": 1e7},
        {"delta": 0},
        {"delta": 1},
        {"events": {}},
        {"events": [[]]},
        {"events": [{}] * 65},
        {"events": [{str(number): 0 for number in range(17)}]},
        {"events": [{"steps": [1]}]},
        {"events": [{"steps": {"deep": 1}}]},
        {"events": [{"steps": None}]},
        {"events": [{"kind": "\x1b[31m"}]},
        {"events": [{"\x1b[31m": 1}]},
        {"events": [{"\ud800": 1}]},
        {"events": [{"steps": 10**400}]},
    ],
    ids=str,
)
def test_a_header_of_a_request_has_exactly_its_fields_and_types(change: dict[str, Any]) -> None:
    header = {**REQUEST, "declared": {**DECLARED, **change}}
    with pytest.raises(MalformedRelease):
        decode(with_header(json.dumps(header).encode()), Request, ROOM)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_numbers_that_are_not_finite_are_refused(text: str) -> None:
    header = json.dumps(REQUEST).replace("0.5", text)
    assert text in header
    with pytest.raises(MalformedRelease):
        decode(with_header(header.encode()), Request, ROOM)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig", "latin-1"])
def test_a_header_in_another_encoding_than_utf_8_is_refused(encoding: str) -> None:
    text = json.dumps({**ANSWER, "reason": "größer"}, ensure_ascii=False)
    assert refused_or_equal(with_header(text.encode()))
    with pytest.raises(MalformedRelease):
        decode(with_header(text.encode(encoding)), Answer, ROOM)


HEADER = json.dumps(ANSWER).encode()
HERE = len(HEADER)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [HERE, HERE + 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [HERE + 4, HERE]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [HERE, HERE + 8]},
        {"dtype": "F32", "shape": [1], "data_offsets": [2**63, 2**63 + 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [HERE, HERE + 4]},
        {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [HERE, HERE + 4]},
        {"dtype": "F32", "shape": [2**63, 2], "data_offsets": [HERE, HERE + 4]},
        {"dtype": "F32", "shape": [0, 2**63], "data_offsets": [HERE, HERE]},
        {"dtype": "F32", "shape": [2**64 - 1, 0], "data_offsets": [HERE, HERE]},
        {"dtype": "F32", "shape": [0] * 70, "data_offsets": [HERE, HERE]},
        {"dtype": "F32", "shape": "1", "data_offsets": [HERE, HERE + 4]},
        {"dtype": "F32", "shape": [1.0], "data_offsets": [HERE, HERE + 4]},
        {"dtype": "F16", "shape": [2], "data_offsets": [HERE, HERE + 4]},
        {"dtype": "BF16", "shape": [2], "data_offsets": [HERE, HERE + 4]},
        {"dtype": "I32", "shape": [1], "data_offsets": [HERE, HERE + 4]},
        {"dtype": "U8", "shape": [4], "data_offsets": [HERE, HERE + 4]},
        {"dtype": "object", "shape": [1], "data_offsets": [HERE, HERE + 4]},
        {"dtype": "F32", "shape": [1]},
        None,
        [],
    ],
    ids=str,
)
def test_arrays_that_are_not_what_they_say_are_refused(entry: Any) -> None:
    with pytest.raises(MalformedRelease):
        decode(with_header(HEADER, {"a": entry}, b"\0" * 4), Answer, ROOM)


@pytest.mark.parametrize("length", [0, 7, 2**20, 2**63, 2**64 - 1])
def test_a_header_of_the_tensors_that_lies_about_its_length_is_refused(length: int) -> None:
    body = encode(Answer("f", wire.QUESTION, 0, 0))[START:]
    with pytest.raises(MalformedRelease):
        decode(signed(struct.pack("<Q", length) + body[8:]), Answer, ROOM)


def test_tensors_nested_as_deep_as_they_fit_are_refused() -> None:
    text = b'{"a":' * 10_000
    with pytest.raises(MalformedRelease):
        decode(signed(struct.pack("<Q", len(text)) + text), Answer, ROOM)


def test_a_header_may_be_as_long_as_allowed_and_no_longer() -> None:
    longest = json.dumps(ANSWER).encode().ljust(wire.LARGEST_HEADER)
    assert refused_or_equal(with_header(longest), room=1 << 20)
    with pytest.raises(MalformedRelease, match="header of at most"):
        decode(with_header(longest + b" "), Answer, 1 << 20)


@pytest.mark.parametrize("version", [0, 3, 255])
def test_another_version_of_the_format_is_refused_with_the_remedy(version: int) -> None:
    body = encode(Answer("f", wire.QUESTION, 0, 0))[START:]
    with pytest.raises(MalformedRelease, match=rf"version 4 .* got {version}\. Install the same fedvi everywhere"):
        decode(signed(body, version), Answer, ROOM)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_100_megabytes_are_refused_at_once_and_never_copied(kind: Any) -> None:
    huge = kind(wire.MAGIC + bytes(100_000_000))
    tracemalloc.start()
    began = time.perf_counter()
    with pytest.raises(MalformedRelease, match="at most"):
        decode(huge, Request, ROOM)
    seconds, (_, most) = time.perf_counter() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1_000_000
    assert seconds < 0.5


def test_a_view_of_wide_items_does_not_hide_its_size() -> None:
    wide = memoryview(bytes(8000)).cast("d")
    with pytest.raises(MalformedRelease, match="at most 600 bytes, got 8000"):
        decode(wide, Request, 600 - wire.LARGEST_HEADER)  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [None, "fedvi", 5, [1, 2], {}])
def test_what_is_not_bytes_is_refused(data: Any) -> None:
    with pytest.raises(MalformedRelease):
        decode(data, Request, ROOM)


def test_a_hostile_message_of_the_largest_size_takes_no_longer_than_an_honest_one_allows() -> None:
    """As many arrays as fit, keys as many as fit: no work beyond what the size pays for."""
    names = {str(n): {"dtype": "F32", "shape": [0], "data_offsets": [HERE, HERE]} for n in range(1000)}
    keys = json.dumps({f"k{n}": n for n in range(6000)}).encode()
    began = time.process_time()
    refused_or_equal(with_header(HEADER, names))
    refused_or_equal(with_header(keys))
    refused_or_equal(with_header(b"[" + b"0," * 30_000 + b"0]"))
    refused_or_equal(with_header(b"9" * wire.LARGEST_HEADER))
    assert time.process_time() - began < 2


@given(arrays_strategy())
def test_arrays_become_a_tree_only_if_number_shapes_and_types_are_those_of_the_template(
    arrays: Mapping[str, np.ndarray],
) -> None:
    template = Gaussian.standard(2)
    fine = {str(n): (np.dtype(np.float32), (2,)) for n in range(2)}
    if {name: (array.dtype, array.shape) for name, array in arrays.items()} == fine:
        return
    with pytest.raises(MalformedRelease):
        wire.tree_of(template, arrays)


def test_a_tree_comes_back_from_its_arrays() -> None:
    q = Gaussian.from_moments(jnp.array([1.0, -2.0, 3.0]), jnp.array([0.5, 1.0, 2.0]))
    sent = encode(Answer("f", wire.QUESTION, 1, 1, arrays=wire.arrays_of(q)))
    assert wire.size_of(q) >= 24
    back = wire.tree_of(Gaussian.standard(3), decode(sent, Answer, wire.size_of(q)).arrays)
    assert (np.asarray(back.natural_mean) == np.asarray(q.natural_mean)).all()
    assert (np.asarray(back.precision) == np.asarray(q.precision)).all()
    again = wire.unpack(Gaussian.standard(3), wire.pack(q))
    assert (np.asarray(again.precision) == np.asarray(q.precision)).all()

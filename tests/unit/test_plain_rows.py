"""Compiled code reads plain rows as Arrow and Python do, to the last bit, and leaves all other rows to them."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedvi.errors import InputError
from fedvi.tables import csv_tables, open_table, plain_rows
from fedvi.tables.plain_rows import read_plain_rows
from fedvi.tables.reader import NUMBER, TEXT, Kind

pytestmark = pytest.mark.skipif(
    plain_rows.parse is None and "CI" not in os.environ, reason="fedvi was installed without a C compiler."
)


def parsed(block: bytes, delimiter: bytes = b",", kinds: bytes = b"n") -> Any:
    assert plain_rows.parse is not None, "Continuous integration must compile fedvi's C code."
    return plain_rows.parse(memoryview(block), delimiter, kinds)


def number(text: str) -> float | None:
    """The number that is written so, by compiled code, or None if that leaves it to others."""
    rows, (buffer, _), (words, _) = parsed(f"{text},\n".encode(), kinds=b"n-")
    assert rows == 1
    return None if words else float(np.frombuffer(buffer)[0])


def same(one: float | None, two: float) -> bool:
    return one is not None and np.float64(one).tobytes() == np.float64(two).tobytes()


# Numbers.


@given(st.booleans(), st.text("0123456789", max_size=19), st.integers(0, 19), st.integers(0, 2), st.integers(0, 2))
def test_numbers_are_the_nearest_doubles(negative: bool, digits: str, decimals: int, before: int, after: int) -> None:
    whole, part = digits[: len(digits) - decimals], digits[max(len(digits) - decimals, 0) :]
    text = "-" * negative + whole + ("." + part if decimals else "")
    found = number(" " * before + text + " " * after)
    if not digits:
        assert found is None
    else:
        assert same(found, float(text))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_as_python_writes_them_come_back(value: float) -> None:
    found = number(repr(value))
    size = 0.0 if value == 0 else abs(value)
    assert same(found, value) if size == 0 or 1e-11 <= size < 1e16 else found is None or same(found, value)


@given(st.text("0123456789", min_size=1, max_size=19), st.integers(0, 18), st.integers(-30, 30), st.sampled_from("eE"))
def test_numbers_with_exponents_are_the_nearest_doubles_or_odd(
    digits: str, decimals: int, exponent: int, letter: str
) -> None:
    decimals = min(decimals, len(digits) - 1)
    text = f"{digits[: len(digits) - decimals]}.{digits[len(digits) - decimals :]}{letter}{exponent:+03d}"
    found = number(text)
    power = exponent - decimals
    if (-22 <= power <= 22 and int(digits) <= 2**53) or -27 <= power <= 0 < int(digits):
        assert same(found, float(text))
    else:
        assert found is None


def test_numbers_half_way_between_doubles_go_to_the_even_one() -> None:
    for power in range(51, 56):
        for step in range(-4, 5):
            double = 2.0**power + step * 2.0 ** (power - 52)
            above = float(np.nextafter(double, np.inf))
            middle = f"{(Decimal(double) + Decimal(above)) / 2:f}"
            found = number(middle)
            assert same(found, float(middle))
            assert found in (double, above)
            assert np.float64(found).view(np.int64) % 2 == 0
            if "." in middle and len(middle) < 20:
                assert number(middle + "1") == above
    assert number("9007199254740993") == 9007199254740992.0
    assert number("9007199254740995") == 9007199254740996.0
    assert same(number("-0.000"), -0.0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "-",
        ".",
        "- 1",
        "1 2",
        "+1",
        "1e",
        "1e+",
        "1e1000",
        "1e99",
        "1 e3",
        "0x10",
        "1,5",
        "1_0",
        "NA",
        "inf",
        "1.2.3",
        "1" * 20,
        "1\t",
    ],
)
def test_what_is_no_plain_number_is_an_odd_word(text: str) -> None:
    rows, (buffer, _), (words, _) = parsed(f"7;\n{text};\n8;\n{text};\n".encode(), b";", b"n-")
    numbers = np.frombuffer(buffer, np.float64, rows)
    assert rows == 4
    assert words == [text.encode()]
    assert numbers[[0, 2]].tolist() == [7, 8]
    assert np.isnan(numbers[[1, 3]]).all()
    assert (numbers.view(np.int64)[[1, 3]] & 0xFFFF).tolist() == [0, 0]


# Words.


@given(st.lists(st.binary(max_size=20).filter(lambda word: not set(word) & set(b',"\r\n')), min_size=1, max_size=60))
def test_words_come_back_in_the_order_in_which_they_were_met(words: list[bytes]) -> None:
    rows, (buffer, _), (known, _) = parsed(b"".join(word + b",\n" for word in words), kinds=b"t-")
    assert known == list(dict.fromkeys(words))
    assert [known[code] for code in np.frombuffer(buffer, np.int64, rows)] == words


def test_more_than_4096_words_are_not_plain() -> None:
    def block(count: int) -> bytes:
        return b"".join(b"person %d,1\n" % row for row in range(count)) * 2

    rows, (buffer, _), (words, _) = parsed(block(4096), kinds=b"tn")
    assert rows == 8192
    assert len(words) == 4096
    assert np.frombuffer(buffer, np.int64).tolist() == [*range(4096)] * 2
    assert parsed(block(4097), kinds=b"tn") is None
    assert parsed(block(4097), kinds=b"-n") is not None
    assert parsed(block(4097), kinds=b"nn") is None  # odd words


# Rows.


@pytest.mark.parametrize(
    "block",
    [
        b"1,2,3\n",
        b"1\n",
        b"1,2\n3\n",
        b'"a""b",2\n',
        b'"a\nb",2\n',
        b'"a"b,2\n',
        b'1,"2\n',
        b'1,"\n',
        b'"\n',
        b"1,2\r3,4\n",
        b"1\r,2\n",
        b"1,2\r\r\n",
        b"\r1,2\n",
    ],
)
def test_other_rows_are_left_to_others(block: bytes) -> None:
    assert parsed(block, kinds=b"nt") is None


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("delimiter", [b",", b";", b"\t", b"|"])
def test_plain_rows_of_all_forms(delimiter: bytes, end: bytes) -> None:
    lines = [b"1,a,u", b"", b'"2.5","b b",', b' -3 ,5" pipe,v', b'4,"",w', b'"5 ",b b,x', b""]
    rows, buffers, words = parsed(end.join(lines).replace(b",", delimiter) + end, delimiter, b"nt-")
    assert rows == 5
    assert np.frombuffer(buffers[0], np.float64, rows).tolist() == [1, 2.5, -3, 4, 5]
    assert np.frombuffer(buffers[1], np.int64, rows).tolist() == [0, 1, 2, 3, 1]
    assert words == [[], [b"a", b"b b", b'5" pipe', b""], []]
    assert len(buffers[2]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((b"1", b",", b"n"), "ends with the end of a line"),
        ((b"", b",", b"n"), "ends with the end of a line"),
        ((bytearray(b"1\n"), b",", b"n"), "nobody can change"),
        ((memoryview(bytearray(b"1\n")).toreadonly(), b",", b"n"), "nobody can change"),
        ((b"1\n", b",", b""), "at least one column"),
        ((b"1\n", b"1", b"n"), "delimiter"),
        ((b"1\n", b"\n", b"n"), "delimiter"),
        ((b"1\n", b"\0", b"n"), "delimiter"),
    ],
)
def test_calls_that_make_no_sense_are_refused(arguments: tuple[Any, bytes, bytes], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parsed(*arguments)


@given(st.binary(max_size=300), st.sampled_from([b"n", b"nt", b"t-n", b"nnnn"]), st.sampled_from([b",", b"\t"]))
@example(b'"', b"n", b",")
@example(b'1"\r', b"n", b",")
def test_any_bytes_are_read_or_refused(block: bytes, kinds: bytes, delimiter: bytes) -> None:
    found = parsed(block + b"\n", delimiter, kinds)
    if found is not None:
        rows, buffers, words = found
        assert rows <= block.count(b"\n") + 1
        for kind, buffer, known in zip(kinds, buffers, words, strict=True):
            codes = np.frombuffer(buffer, np.int64, rows) if kind == ord("t") else np.zeros(0, np.int64)
            assert len(np.unique(codes)) == (len(known) if kind == ord("t") else 0)


def test_columns_with_few_words_take_little_memory() -> None:
    width = 20_000
    block = b",".join([b"NA"] * width) + b"\n"
    tracemalloc.start(1)
    rows, _, words = parsed(block * 3, kinds=b"n" * width)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rows == 3
    assert words == [[b"NA"]] * width
    assert peak < 2000 * width


def test_threads_do_not_disturb_each_other() -> None:
    blocks = [b"".join(b"%d,w%d\n" % (row, row % (7 + seed)) for row in range(5000)) for seed in range(16)]
    alone = [parsed(block, kinds=b"nt") for block in blocks]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda block: parsed(block, kinds=b"nt"), blocks)) == alone


# Whole tables, with and without compiled code.


@contextmanager
def changed(owner: Any, **values: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setattr(owner, name, value)
        yield


def read(path: Path, wanted: dict[str, Kind]) -> tuple[Any, Any] | str:
    """All numbers and words of a table, or what is said against it."""
    try:
        batches = list(open_table(path).batches(wanted))
    except InputError as error:
        return str(error)
    numbers = {
        name: b"".join(batch.numbers[name].tobytes() for batch in batches) for name in wanted if wanted[name] == NUMBER
    }
    words = {
        name: [
            batch.texts[name].values[code] if code >= 0 else None
            for batch in batches
            for code in batch.texts[name].codes
        ]
        for name in wanted
        if wanted[name] == TEXT
    }
    return numbers, words


NUMBERS = [
    "",
    " ",
    "0",
    "-0",
    "7",
    "3.25",
    " 12.5 ",
    "1e-3",
    "2.5E+08",
    "1e999",
    "NA",
    "?",
    "nan",
    "+4",
    "1.",
    ".5",
    "inf",
    "1_000",
    "3,5",
]
DIGITS = ["12345678901234567890", "0.1234567890123456789", "9007199254740993", "0.12345678901234567"]
WORDS = [
    "F",
    "M",
    " M",
    "M ",
    "é",
    "\0",
    '5" pipe',
    '"7"',
    '"a b"',
    '""',
    '"a,b"',
    '"a""b"',
    '"two\nlines"',
    "a\rb",
    "\t",
]
CELLS = st.sampled_from([*NUMBERS, *DIGITS, *WORDS])
TAME = st.sampled_from(["", "0", "-0", "7", "3.25", " 12.5 ", "1e-3", "NA", '"7"', *DIGITS])


@given(
    st.one_of(
        st.lists(st.tuples(TAME, CELLS, CELLS), max_size=12), st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=5)
    ),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from(["x,y,z", '"x",y,z', '"x\n",y,z']),
    st.booleans(),
    st.sampled_from([1 << 22, 40]),
)
def test_tables_read_the_same_with_and_without_compiled_code(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str, str]],
    end: str,
    delimiter: str,
    header: str,
    last: bool,
    block_bytes: int,
) -> None:
    lines = [header.replace(",", delimiter), *(delimiter.join(row) for row in rows)]
    path = tmp_path_factory.getbasetemp() / "same.csv"
    path.write_bytes((end.join(lines) + end * last).encode())
    wanted: dict[str, Kind] = {"x": NUMBER, "y": TEXT}
    with changed(csv_tables, BLOCK_BYTES=block_bytes):
        compiled = read(path, wanted)
        with changed(plain_rows, parse=None):
            assert compiled == read(path, wanted)


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b'a"b,"c\n7,e",f"\n1,2,3\n', 1),  # a header of two lines, whose first has an even number of marks
        (b'"a","b\nb",c\n1,2,3\n', 1),
        (b"a,b,c\r1,2,3\r\n1,2,3\n", 2),
        (b"a,b,c\r\n1,2,3\r\n", 1),
        (b"\xef\xbb\xbfa,b,c\n1,2,3\n", 1),
    ],
)
def test_headers_of_all_forms_are_no_rows(tmp_path: Path, content: bytes, rows: int) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    column = open_table(path).columns[0]
    with_code = read(path, {column: NUMBER})
    assert with_code == ({column: np.ones(rows).tobytes()}, {})
    with changed(plain_rows, parse=None):
        assert read(path, {column: NUMBER}) == with_code


def test_a_byte_order_mark_within_a_table_is_text(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(("x,y\n" + "\ufeffq,3\n" * 100).encode())
    with changed(csv_tables, BLOCK_BYTES=50):
        with_code = read(path, {"x": TEXT})
        with changed(plain_rows, parse=None):
            assert read(path, {"x": TEXT}) == with_code == ({}, {"x": ["\ufeffq"] * 100})


def test_compiled_code_is_used_for_plain_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table.csv"
    path.write_text('"x","y"\n1,a\nNA,b\n')
    monkeypatch.setattr(csv_tables.CsvReader, "_parse_as", None)  # what asks Arrow
    assert read(path, {"x": NUMBER, "y": TEXT}) == ({"x": np.array([1, np.nan]).tobytes()}, {"y": ["a", "b"]})


def test_odd_words_that_are_no_numbers_are_left_to_others() -> None:
    block = memoryview(b"1,2\nNA,one\n")
    assert read_plain_rows(block, ",", ("x", "y"), {"x": NUMBER}) is not None
    assert read_plain_rows(block, ",", ("x", "y"), {"y": NUMBER}) is None
    assert read_plain_rows(memoryview(b""), ",", ("x",), {"x": NUMBER}) is None

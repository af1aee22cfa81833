"""Tables of all kinds become the same arrays; what cannot be read is refused in one line that names the place."""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvi.errors import InputError
from fedvi.tables import (
    BinaryTarget,
    Category,
    Counts,
    Encoded,
    Interaction,
    Number,
    NumberTarget,
    Schema,
    open_table,
)
from fedvi.tables import (
    encode as encoding,
)
from fedvi.tables.encode import encode, encode_chunks
from fedvi.tables.reading import arrow_tables, csv_tables
from fedvi.tables.reading import source as tables
from fedvi.tables.reading.chunk import NUMBER, TEXT, Kind
from fedvi.tables.reading.source import Dialect
from fedvi.tables.reading.words import parse_number

SCHEMA = Schema(
    (
        Number("age", 0, 100, 50, 20, missing="indicator", knots=(10, 30, 50, 70)),
        Category("sex", ("F", "M"), unknown="other", missing="missing"),
        Category("code", ("0", "1"), unknown="error", reference="1"),
        Category("flag", ("false", "true"), unknown="error", missing="error"),
        Number("dose", 0, 4, 0.25, 0.5, transform="log1p", knots=(0, 1, 4)),
    ),
    BinaryTarget("died", ("no", "yes")),
    interactions=(Interaction(("age", "sex")), Interaction(("dose", "age")), Interaction(("sex", "code"))),
    dialect=Dialect(decimal="."),
)
COLUMNS: dict[str, list[Any]] = {
    "site": [1, 2, 1, 2, 10],
    "age": [10, None, 200, 5.5, 50],
    "sex": ["F", " M ", None, "X", "M"],
    "code": [0, 1.0, None, 1, 0],
    "flag": [True, False, True, True, False],
    "died": ["no", "yes", "yes", "no ", "no"],
    "dose": [0, 1, -3, 0.25, None],
    "unused": ["a", "b", "c", "d", "e"],
}
CSV = "age,sex,died\n" + "".join(f"{20 + row},{'FM'[row % 2]},{('no', 'yes')[row % 3 == 0]}\n" for row in range(30))
SMALL = Schema((Number("age", 0, 100, 50, 20), Category("sex", ("F", "M"))), BinaryTarget("died", ("no", "yes")))


def same(one: Encoded, two: Encoded) -> bool:
    assert (one.y is None) == (two.y is None)
    assert (one.sites is None) == (two.sites is None)
    return (
        np.array_equal(one.x, two.x)
        and (one.y is None or two.y is None or np.array_equal(one.y, two.y))
        and (one.sites is None or two.sites is None or one.sites.tolist() == two.sites.tolist())
        and one.counts == two.counts
    )


def joined(parts: list[Encoded]) -> Encoded:
    return Encoded(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts if part.y is not None]),
        np.concatenate([part.sites for part in parts if part.sites is not None]),
        sum((part.counts for part in parts), Counts()),
    )


def by_hand(schema: Schema, rows: list[dict[str, str]]) -> tuple[np.ndarray, np.ndarray]:
    """Encode rows of text by a plain loop: another way to the same numbers."""
    x = []
    for row in rows:
        line = [1.0] if schema.intercept else []
        for column in schema.columns:
            text = row[column.name].strip()
            gap = text in ("", "NA", "?", "nan")
            if isinstance(column, Number):
                log = math.log1p if column.transform == "log1p" else float
                value = column.centre if gap else log(min(max(float(text), column.low), column.high))
                knots = [log(knot) for knot in column.knots]
                line.append((value - column.centre) / column.scale)
                for left, at, right in zip(knots, knots[1:], knots[2:]):  # noqa: B905 (the shortest counts)
                    line.append(max(0.0, min((value - left) / (at - left), (right - value) / (right - at))))
                line += [float(gap)] if column.missing == "indicator" else []
            else:
                assert isinstance(column, Category)
                kind = text if text in column.values else column.missing if gap else column.unknown
                levels = (*column.values, *(extra for extra in ("other", "missing") if extra in policies(column)))
                kind = column.reference if kind == "reference" else kind
                line += [float(kind == level) for level in levels if level != column.reference]
        named = dict(zip(schema.features, line, strict=False))
        for interaction in schema.interactions:
            one, two = (
                [value for name, value in named.items() if name == part or name.startswith(f"{part}=")]
                for part in (name if name != "dose" else "log1p(dose)" for name in interaction.of)
            )
            line += [a * b for a in one for b in two]
        x.append(line)
    target = schema.target
    assert isinstance(target, BinaryTarget)
    return np.array(x, np.float32), np.array(
        [2.0 * target.values.index(row[target.name]) - 1 for row in rows], np.float32
    )


def policies(column: Category) -> tuple[str, str]:
    return column.unknown, column.missing


# One table, many forms.


def forms(directory: Path) -> dict[str, Any]:
    frame = pd.DataFrame(COLUMNS)
    other = pl.from_pandas(frame)
    text = frame.to_csv(index=False)
    for name, content in {
        "t.csv": text.encode(),
        "T.CSV": text.encode(),
        "dos.csv": text.replace("\n", "\r\n").encode(),
        "bom.csv": b"\xef\xbb\xbf" + text.encode(),
        "t.csv.gz": gzip.compress(text.encode(), mtime=0),
        "semicolon.csv": frame.to_csv(index=False, sep=";").encode(),
        "pipe.csv": frame.to_csv(index=False, sep="|").encode(),
        "t.tsv": frame.to_csv(index=False, sep="\t").encode(),
        "quoted.csv": frame.to_csv(index=False, quoting=csv.QUOTE_ALL).encode(),
        "blanks.csv": text.replace(",", ", ").encode(),
        "open_end.csv": text.rstrip("\n").encode(),
    }.items():
        (directory / name).write_bytes(content)
    frame.to_parquet(directory / "pandas.parquet")
    other.write_parquet(directory / "polars.pq")
    frame.to_feather(directory / "t.feather")
    other.write_ipc(directory / "t.arrow")
    other.write_ipc_stream(directory / "stream.arrow")
    return {path.name: path for path in directory.iterdir()} | {
        "pandas": frame,
        "pandas, categorical": frame.astype({"sex": "category", "code": "category"}),
        "pandas, nullable": frame.convert_dtypes(),
        "pandas, text": frame.astype(str),
        "polars": other,
        "polars, categorical": other.with_columns(pl.col("sex").cast(pl.Categorical)),
        "polars, decimal": other.with_columns(pl.col("age").cast(pl.Decimal(10, 2))),
        "polars, strings": other.with_columns(pl.col("age").cast(pl.String)),
        "pyarrow": pa.Table.from_pandas(frame),
        "pyarrow, stream": pa.Table.from_pandas(frame).to_reader(),
        "dictionary": COLUMNS,
        "dictionary of arrays": {name: np.array(values, object) for name, values in COLUMNS.items()},
    }


def test_all_forms_of_a_table_give_the_same_arrays(tmp_path: Path) -> None:
    found = {name: encode(SCHEMA, source, site_column="site") for name, source in forms(tmp_path).items()}
    wanted = found["dictionary"]
    assert wanted.x[:, SCHEMA.features.index("age")].tolist() == [-2, 0, 2.5, np.float32(-2.225), 0]
    assert wanted.x[:, SCHEMA.features.index("sex=other")].tolist() == [0, 0, 0, 1, 0]
    assert wanted.x[:, SCHEMA.features.index("sex=missing")].tolist() == [0, 0, 1, 0, 0]
    assert wanted.x[:, SCHEMA.features.index("age~[30]")].tolist() == [0, 0, 0, 0, 0]
    assert wanted.x[:, SCHEMA.features.index("age~[50]")].tolist() == [0, 1, 0, 0, 1]
    assert wanted.y is not None
    assert wanted.y.tolist() == [-1, 1, 1, -1, -1]
    assert wanted.sites is not None
    assert wanted.sites.tolist() == ["1", "2", "1", "2", "10"]
    assert wanted.counts == Counts(
        5,
        {"age": 1, "dose": 1},
        {"age": 1, "sex": 1, "code": 1, "flag": 0, "dose": 1, "died": 0},
        {"sex": 1, "code": 0, "flag": 0, "died": 0},
        {"age": 0, "dose": 0},
        {"sex": 0, "code": 1, "flag": 0, "dose": 1},
        examples={"sex": "'X'"},
    )
    assert [name for name in found if not same(found[name], wanted)] == []


def test_other_encodings_of_text_are_read(tmp_path: Path) -> None:
    for codec in ("latin-1", "utf-16", "utf-8"):
        path = tmp_path / f"{codec}.csv"
        path.write_text("größe,ort\n1,Zürich\n2,Genève\n", encoding=codec)
        (chunk,) = open_table(path, encoding=codec).chunks({"ort": TEXT, "größe": NUMBER})
        assert [chunk.text("ort").values[code] for code in chunk.text("ort").codes] == ["Zürich", "Genève"]
        assert chunk.numbers("größe")[0].tolist() == [1, 2]


def test_a_reader_reads_files_and_frames_twice_and_streams_once(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(CSV)
    frame = pd.read_csv(tmp_path / "t.csv")
    for source in (tmp_path / "t.csv", frame, pl.from_pandas(frame)):
        reader = open_table(source)
        assert same(encode(SMALL, reader), encode(SMALL, reader))
    reader = open_table(pa.Table.from_pandas(frame).to_reader())
    encode(SMALL, reader)
    with pytest.raises(
        InputError, match="can be read again, got the pyarrow RecordBatchReader: give a table or a file"
    ):
        encode(SMALL, reader)


def test_numbers_that_only_python_understands_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a\n+1.5\n   NA   \n 2 \n1e3\n?\n-.5\n")
    (chunk,) = open_table(path).chunks({"a": NUMBER})
    np.testing.assert_array_equal(chunk.numbers("a")[0], [1.5, np.nan, 2, 1000, np.nan, -0.5])


def test_lines_within_quotation_marks_do_not_end_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"note": f'he said "{row}",\nthen left\n' * (row % 4), "n": str(row)} for row in range(200)]
    out = io.StringIO()
    writer = csv.DictWriter(out, ["note", "n"])
    writer.writeheader()
    writer.writerows(rows)
    (tmp_path / "t.csv").write_text(out.getvalue(), newline="")
    for size in (100, 300, 1 << 20):
        monkeypatch.setattr(csv_tables, "BLOCK_BYTES", size)
        chunks = list(open_table(tmp_path / "t.csv").chunks({"n": NUMBER, "note": TEXT}))
        assert np.concatenate([chunk.numbers("n")[0] for chunk in chunks]).tolist() == list(range(200))
        read = [
            chunk.text("note").values[code] if code >= 0 else ""
            for chunk in chunks
            for code in chunk.text("note").codes
        ]
        assert read == [row["note"].replace("\r\n", "\n").strip() for row in rows]


def test_a_quotation_mark_within_a_value_is_a_letter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_tables, "BLOCK_BYTES", 20)
    path = tmp_path / "t.csv"
    path.write_text("n,pipe\n" + "".join(f"{row},{row} {chr(34) if row == 7 else 'cm'}\n" for row in range(100)))
    chunks = list(open_table(path).chunks({"n": NUMBER, "pipe": TEXT}))
    assert np.concatenate([chunk.numbers("n")[0] for chunk in chunks]).tolist() == list(range(100))
    assert any('7 "' in chunk.text("pipe").values for chunk in chunks)
    path.write_text("n,pipe\n" + 200 * "1")
    with pytest.raises(InputError, match=r"Expected rows of at most 20 bytes in .*t.csv, got a longer one after row 0"):
        list(open_table(path).chunks({"n": NUMBER}))


# The encoding.


CELLS = {
    "age": st.sampled_from(["", "NA", "?", "50", " 7.25", "-3", "1e3", "99.999"]),
    "sex": st.sampled_from(["F", "M", " M", "x", "", "?"]),
    "code": st.sampled_from(["0", "1", "NA"]),
    "flag": st.sampled_from(["false", "true"]),
    "dose": st.sampled_from(["0", "-1.5", "0.3", "2.5", "nan"]),
    "died": st.sampled_from(["no", "yes"]),
    "site": st.sampled_from(["a", "bc"]),
}


@given(
    st.lists(st.fixed_dictionaries(CELLS), min_size=1, max_size=19),
    st.integers(60, 300),
    st.integers(1, 6),
    st.sampled_from([",", ";", "\t"]),
)
def test_encoding_in_chunks_equals_encoding_at_once_and_by_hand(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, str]], block: int, chunk: int, delimiter: str
) -> None:
    path = tmp_path_factory.mktemp("table") / "t.csv"
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, CELLS, delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    whole = encode(SCHEMA, path, site_column="site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_tables, "BLOCK_BYTES", block)
        patch.setattr(arrow_tables, "CHUNK_ROWS", 3)
        patch.setattr(encoding, "CHUNK_BYTES", 4 * SCHEMA.dim * chunk)
        parts = list(encode_chunks(SCHEMA, path, site_column="site"))
        from_frame = list(
            encode_chunks(SCHEMA, {name: [row[name] for row in rows] for name in CELLS}, site_column="site")
        )
        assert same(encode(SCHEMA, path, site_column="site"), whole)
    assert max(len(part.x) for part in parts) <= chunk
    assert same(joined(parts), whole)
    assert same(joined(from_frame), whole)
    with open(path, newline="") as file:
        x, y = by_hand(SCHEMA, list(csv.DictReader(file, delimiter=delimiter)))
    assert whole.x.dtype == np.float32
    np.testing.assert_allclose(whole.x, x, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(whole.y, y)
    assert np.abs(whole.x).max() <= SCHEMA.bound
    for group in SCHEMA.exclusive:
        assert set(np.count_nonzero(whole.x[:, group], axis=1)) <= {0, 1}
        assert set(np.unique(whole.x[:, group])) <= {0, 1}


def test_a_number_as_target_is_clipped_and_scaled() -> None:
    schema = Schema((Number("x", 0, 1, 0, 1),), NumberTarget("y", 0, 10, 4, 2), intercept=False)
    encoded = encode(schema, {"x": [0.5, 0.5], "y": [5, 99]})
    assert encoded.y is not None
    assert (encoded.x.tolist(), encoded.y.tolist()) == ([[0.5], [0.5]], [0.5, 3.0])
    assert encoded.counts.clipped == {"x": 0, "y": 1}


@pytest.mark.parametrize("values", [("0", "1"), ("false", "true"), ("True", "False"), ("1.0", "0")])
def test_labels_may_be_0_and_1_or_booleans(tmp_path: Path, values: tuple[str, str]) -> None:
    truth = [True, False, False, True]
    schema = Schema((Number("x", 0, 1, 0, 1),), BinaryTarget("y", values))
    sign = -1 if values[0] in ("True", "1.0") else 1
    (tmp_path / "t.csv").write_text("x,y\n0,TRUE\n0,0\n0,False\n0,1.0\n")
    forms = [truth, [1, 0, 0, 1], [1.0, 0.0, 0.0, 1.0], ["true", "FALSE", "0", "1"]]
    x = np.zeros(4)
    tables: list[Any] = [{"x": x, "y": form} for form in forms]
    for table in [*tables, pd.DataFrame(tables[0]), pl.DataFrame(tables[0]), tmp_path / "t.csv"]:
        y = encode(schema, table).y
        assert y is not None
        assert y.tolist() == [sign * (1 if each else -1) for each in truth]
    with pytest.raises(InputError, match=r"Expected 'no' or 'yes' in row 1 .* got 'true'"):
        encode(SMALL, ROWS | {"died": [True, False]}, strict=True)


def test_tables_without_the_target_can_be_encoded_to_predict() -> None:
    encoded = encode(SMALL, {"age": [30], "sex": ["F"]}, target=False)
    assert encoded.y is None
    assert encoded.x.tolist() == [[1, -1, 0]]


def test_words_for_missing_are_values_if_the_schema_lists_them() -> None:
    schema = Schema((Category("country", ("NA", "ZA"), missing="missing"),), BinaryTarget("y", ("0", "1")))
    encoded = encode(schema, {"country": ["NA", "ZA", "?", None], "y": [0, 1, 1, 0]})
    assert encoded.x.tolist() == [[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 0, 1]]
    assert encoded.counts.missing == {"country": 2, "y": 0}


def test_counts_add_up() -> None:
    one, two = Counts(2, {"a": 1}, {"a": 0, "b": 2}, {"b": 1}), Counts(3, {"a": 2}, {"b": 1, "c": 4}, {})
    assert one + two == Counts(5, {"a": 3}, {"a": 0, "b": 3, "c": 4}, {"b": 1})


def test_memory_does_not_grow_with_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_tables, "BLOCK_BYTES", 1 << 16)
    monkeypatch.setattr(arrow_tables, "CHUNK_ROWS", 4000)
    body = CSV.partition("\n")[2]
    table = pa.table({"age": np.arange(4000) % 90, "sex": ["F", "M"] * 2000, "died": ["no", "yes"] * 2000})

    def peak(times: int, suffix: str) -> int:
        path = tmp_path / f"{times}{suffix}"
        if suffix == ".csv":
            path.write_text("age,sex,died\n" + body * (300 * times))
        else:
            with pq.ParquetWriter(path, table.schema) as writer:
                for _ in range(times):
                    writer.write_table(table)
        most = 0
        for _ in encode_chunks(SMALL, path):
            most = max(most, pa.total_allocated_bytes())
        return most

    for suffix in (".csv", ".parquet"):
        short, long = peak(10, suffix), peak(100, suffix)
        assert 0 < long < 3 * short


def test_leaving_a_stream_early_leaves_nothing_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_tables, "BLOCK_BYTES", 50)
    (tmp_path / "t.csv").write_text(CSV)
    stream = encode_chunks(SMALL, tmp_path / "t.csv")
    next(iter(stream))
    stream.close()  # type: ignore[attr-defined]
    os.rename(tmp_path / "t.csv", tmp_path / "u.csv")
    assert encode(SMALL, tmp_path / "u.csv").counts.rows == 30


def test_gaps_are_found_in_parts_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_tables, "CHUNK_ROWS", 7)
    numbers = [None if row % 3 == 0 or row > 90 else row / 8 for row in range(100)]
    words = [None if row % 5 == 0 else "ab"[row % 2] for row in range(100)]
    table = pa.table({"whole": range(100), "x": numbers, "y": words})
    chunks = list(open_table(table.slice(3)).chunks({"x": NUMBER, "whole": NUMBER, "y": TEXT}))
    found = np.concatenate([chunk.numbers("x")[0] for chunk in chunks])
    np.testing.assert_array_equal(found, np.array(numbers[3:], float))
    assert np.concatenate([chunk.numbers("whole")[0] for chunk in chunks]).tolist() == list(range(3, 100))
    texts = [chunk.text("y") for chunk in chunks]
    assert [text.values[code] if code >= 0 else None for text in texts for code in text.codes] == words[3:]


# Errors.


def refused(source: Any, schema: Schema = SMALL, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        encode(schema, source, strict=True, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert "Arrow" not in message.replace("speak Arrow", "").replace("an Arrow file", "")
    return message


ROWS: dict[str, list[Any]] = {"age": [30, 40], "sex": ["F", "M"], "died": ["no", "yes"]}
STRICT = Schema(
    (Number("age", 0, 100, 50, 20, missing="error"), Category("sex", ("F", "M"), "error", "error")), SMALL.target
)


@pytest.mark.parametrize("block", [20, 1 << 20])
@pytest.mark.parametrize(
    ("change", "schema", "message"),
    [
        ({"age": [30, "old"]}, SMALL, "Expected a number in row 27 of column 'age' of NAME, got 'old'. Correct it"),
        ({"age": [30, "1_000"]}, SMALL, "got '1_000'. Correct it, leave it empty, or name it in missing_values"),
        ({"age": [30, "inf"]}, SMALL, "Expected a number in row 27 of column 'age' of NAME, got 'inf'"),
        ({"age": [30, "1e999"]}, SMALL, "Expected a number in row 27 of column 'age' of NAME, got "),
        ({"age": [30, "101,5"]}, SMALL, "Expected a number from 0 to 100 in row 27 of column 'age' of NAME, got 101"),
        ({"age": [30, ""]}, STRICT, "Expected a value in row 27 of column 'age' of NAME, got none. Fill it in"),
        ({"sex": ["F", "?"]}, STRICT, "Expected a value in row 27 of column 'sex' of NAME, got none. Fill it in"),
        ({"sex": ["F", "m"]}, STRICT, "Expected one of 'F', 'M' in row 27 of column 'sex' of NAME, got 'm'. Did you"),
        ({"sex": ["F", "m"]}, SMALL, "Expected one of 'F', 'M' in row 27 of column 'sex' of NAME, got 'm'. Did you"),
        ({"died": ["no", "maybe"]}, SMALL, "Expected 'no' or 'yes' in row 27 of column 'died' of NAME, the target"),
        ({"died": ["no", ""]}, SMALL, "Expected a value in row 27 of column 'died' of NAME, the target, got none"),
        ({"site": ["a", ""]}, SMALL, "Expected the name of a site in row 27 of column 'site' of NAME, got none"),
    ],
)
def test_bad_values_are_named_with_row_column_and_remedy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, list[Any]],
    schema: Schema,
    message: str,
    block: int,
) -> None:
    monkeypatch.setattr(csv_tables, "BLOCK_BYTES", block)
    columns = {name: [values[0]] * 26 + [values[1]] for name, values in (ROWS | {"site": ["a", "b"]} | change).items()}
    path = tmp_path / "t.csv"
    path.write_text(
        "\n".join(
            [",".join(columns), *(",".join(f'"{v}"' for v in row) for row in zip(*columns.values(), strict=True))]
        )
    )
    text = {name: list(map(str, values)) for name, values in columns.items()}
    for source, name in (
        (path, str(path)),
        (text, "the dictionary"),
        (pd.DataFrame(text), "the pandas DataFrame"),
        (pl.DataFrame(text), "the polars DataFrame"),
    ):
        assert message.replace("NAME", name) in refused(source, schema, site_column="site")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"", "Expected a header in NAME, got an empty file."),
        ("t.csv", b"\n \n", "Expected a header in NAME, got no text."),
        ("t.csv", b"\n1,2\n", "Expected column 'age' in NAME, got 1, 2."),
        ("t.csv", b"age,sex,died\n", "Expected rows in NAME, got only a header with 3 columns."),
        ("t.csv", b"age,sex,died", "Expected rows in NAME, got only a header with 3 columns."),
        ("t.csv", b"Age,sex,died\n1,F,no\n", "Expected column 'age' in NAME, got Age, sex, died. Did you mean 'Age'?"),
        ("t.csv", b"age,age,died\n1,F,no\n", "Expected every column of NAME once, got 'age' twice. Rename one."),
        ("t.csv", b"age,sex,died\n1,F,no\n2,M\n", "Expected 3 values in row 2 of NAME, as the header has, got 2"),
        ("t.csv", b"age,sex,died\n1,F,no\n2,M,no,no\n", "Expected 3 values in row 2 of NAME, as the header has, got 4"),
        ("t.csv", b"\xe4ge,sex,died\n1,F,no\n", "Expected column 'age' in NAME, got \xe4ge, sex, died."),
        ("t.csv", b"a\0ge,sex,died\n1,F,no\n", "Expected a text file, got NAME: its first lines hold zero bytes."),
        ("t.csv", b'age,sex,died\n1,"F,no\n2,F,no\n', "Expected 3 values in row 1 of NAME, as the header has, got 2"),
        ("t.csv.gz", b"age,sex,died\n1,F,no\n", "Expected to read NAME, got: Not a gzipped file"),
        ("t.csv.gz", gzip.compress(CSV.encode(), mtime=0)[:60], "Expected to read NAME, got: Compressed file ended"),
        ("t.parquet", b"age,sex,died\n1,F,no\n", "Expected a Parquet file, got NAME: Parquet magic bytes not found"),
        ("t.parquet", b"", "Expected a Parquet file, got NAME"),
        ("t.arrow", b"", "Expected a table in NAME, got an empty file."),
        ("t.arrow", b"age,sex,died\n1,F,no\n", "Expected an Arrow file, got NAME"),
        ("t.xlsx", b"", "Expected a workbook, got NAME"),
        ("t.doc", b"", "Expected the name of a table to end with one of .csv, .tsv, .txt"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert message.replace("NAME", str(path)) in refused(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"age,sex,died\n1,F,no\n2,\xfc,no\n",
            "Expected UTF-8 text in row 2 of column 'sex' of NAME, got '\\xfc'. Give its encoding, such as --encoding",
        ),
        (b"\xe4ge,sex,died\n1,F,no\n", "Expected UTF-8 text in the header of NAME"),
    ],
)
def test_a_text_of_another_encoding_than_was_said_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(message.replace("NAME", str(path)))):
        encode(SMALL, open_table(path, encoding="utf-8"))
    with pytest.raises(InputError, match="Expected a text encoding such as utf-8 or latin-1, got 'klingon'"):
        open_table(path, encoding="klingon")


def test_files_that_are_not_there_or_not_allowed_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"Expected a table at {tmp_path}/no.csv, got no such file." in refused(tmp_path / "no.csv")
    assert f"Expected the file of a table, got the directory {tmp_path}." in refused(tmp_path)
    path = tmp_path / "t.csv"
    path.write_text(CSV)

    def forbidden(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tables, "open", forbidden, raising=False)  # the tests may run as somebody who may read all
    assert f"Expected to be allowed to read {path}, got permission denied." in refused(str(path))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (np.zeros((2, 2)), "Expected the path of a table, a data frame or a dictionary of columns, got ndarray"),
        (
            {"age": [1], "sex": ["F", "M"], "died": ["no"]},
            "Expected columns of equal length in the dictionary, got age 1",
        ),
        ({"age": [1, "x", b"y"]}, "Expected a list of values for column 'age' of the dictionary"),
        ({}, "Expected columns in the dictionary, got none"),
        ({"age": [], "sex": [], "died": []}, "Expected rows in the dictionary, got only a header with 3 columns"),
        (pd.DataFrame([[1, 2]], columns=["age", "age"]), "Expected the pandas DataFrame to be a table, got: Duplicate"),
        (
            pa.table([[1], [2]], names=["age", "age"]),
            "Expected every column of the pyarrow Table once, got 'age' twice",
        ),
        (pd.Series([1, 2], name="age"), "Expected the pandas Series to be a table"),
        (
            ROWS | {"age": pd.to_datetime(["2020-01-01", "2021-01-01"])},
            "Expected numbers in column 'age' of the dictionary",
        ),
        (ROWS | {"sex": [["F"], ["M"]]}, "Expected text or numbers in column 'sex' of the dictionary, got list"),
    ],
)
def test_bad_objects_are_refused(source: Any, message: str) -> None:
    assert message in refused(source)


def test_a_column_without_any_value_is_refused_in_tables_that_are_long_enough() -> None:
    def rows(count: int) -> dict[str, list[Any]]:
        return {"age": [None] * count, "sex": ["F"] * count, "died": ["no"] * count}

    assert encode(SMALL, rows(19)).counts.missing["age"] == 19
    assert encode(SMALL, rows(20), private=True).counts.missing["age"] == 20
    with pytest.raises(InputError, match=r"column 'age' .* got none in 20 rows, for example 'x' in row 1\."):
        encode(SMALL, rows(20) | {"age": ["x"] * 20})
    assert "Expected values in column 'age' of the dictionary, got none in 20 rows." in refused(rows(20))
    everything_unknown = rows(20) | {"age": [1] * 20, "sex": ["X"] * 20}
    assert encode(SMALL, everything_unknown).counts.unknown == {"sex": 20, "died": 0}


def test_the_column_of_sites_may_be_any_that_is_there() -> None:
    encoded = encode(SMALL, ROWS, site_column="age")
    assert encoded.sites is not None
    assert (encoded.x.tolist(), encoded.sites.tolist()) == ([[1, -1, 0], [1, -0.5, 1]], ["30", "40"])
    assert re.search(
        "Expected column 'clinic' in the dictionary, got age, sex, died", refused(ROWS, site_column="clinic")
    )


def test_columns_of_distinct_values_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_tables, "BLOCK_BYTES", 1 << 12)
    path = tmp_path / "table.csv"
    path.write_text("name,kind\n" + "".join(f"person {row},{'ab'[row % 2]}\n" for row in range(5000)))
    chunks = list(open_table(path).chunks({"name": TEXT, "kind": TEXT}))
    assert [chunk.text("name").values[code] for chunk in chunks for code in chunk.text("name").codes] == [
        f"person {row}" for row in range(5000)
    ]


def test_words_that_come_late_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_tables, "BLOCK_BYTES", 1 << 10)
    kinds = ["a"] * 1000 + ["b"] * 1000 + ["", "\0", "é", " c ", "c"] * 100 + ["a"] * 500
    path = tmp_path / "table.csv"
    path.write_text("n,kind\n" + "".join(f"{row},{kind}\n" for row, kind in enumerate(kinds)))
    found = [
        chunk.text("kind").values[code] if code >= 0 else ""
        for chunk in open_table(path).chunks({"n": NUMBER, "kind": TEXT})
        for code in chunk.text("kind").codes
    ]
    assert found == [kind.strip() for kind in kinds]


# Odd files.

NUMBERS = ["", " ", "0", "-0", "7", "3.25", " 12.5 ", "1e-3", "2.5E+08", "NA", "?", "nan", "+4", "1.", ".5", '"7"']
DIGITS = ["12345678901234567890", "0.1234567890123456789", "9007199254740993", "0.12345678901234567", "1e-320"]
WORDS = ["F", " M", "M ", "é", '5" pipe', '"7"', '"a b"', '""', '"a,b"', '"a""b"', '"two\nlines"', "\ufeffq", "NA"]


def read(path: Path, wanted: dict[str, Kind]) -> dict[str, Any]:
    """All numbers, as bytes, and words of a table."""
    chunks = list(open_table(path).chunks(wanted))
    found: dict[str, Any] = {}
    for name, kind in wanted.items():
        if kind == NUMBER:
            found[name] = np.concatenate([chunk.numbers(name)[0] for chunk in chunks]).tobytes()
        else:
            found[name] = [
                chunk.text(name).values[code] if code >= 0 else None
                for chunk in chunks
                for code in chunk.text(name).codes
            ]
    return found


@given(
    st.lists(st.tuples(st.sampled_from([*NUMBERS, *DIGITS]), st.sampled_from(WORDS)), min_size=1, max_size=30),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["x,y,z", '"x",y,z', '"x\n",y,z']),
    st.booleans(),
    st.sampled_from([1 << 22, 80]),
)
def test_tables_are_read_as_python_reads_them(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str]],
    end: str,
    header: str,
    last: bool,
    block_bytes: int,
) -> None:
    lines = [header, *(f"{number},{word},z" for number, word in rows)]
    path = tmp_path_factory.getbasetemp() / "odd.csv"
    path.write_bytes((end.join(lines) + end * last).encode())
    _, *cells = csv.reader(io.StringIO(path.read_bytes().decode(), newline=""))
    wanted = {
        "x": np.array([parse_number(cell) for cell, _, _ in cells]).tobytes(),
        "y": [cell.strip() or None for _, cell, _ in cells],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_tables, "BLOCK_BYTES", block_bytes)
        assert read(path, {"x": NUMBER, "y": TEXT}) == wanted


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1), st.integers(1, 17))
def test_numbers_are_the_nearest_doubles(
    tmp_path_factory: pytest.TempPathFactory, values: list[float], digits: int
) -> None:
    texts = [*map(repr, values), *(f"{value:.{digits}g}" for value in values)]
    path = tmp_path_factory.getbasetemp() / "numbers.csv"
    path.write_text("x\n" + "\n".join(texts) + "\n")
    assert read(path, {"x": NUMBER}) == {"x": np.array([float(text) for text in texts]).tobytes()}


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b'a"b,"c\n7,e",f"\n1,2,3\n', 1),  # a header of two lines, whose first has an even number of marks
        (b'"a","b\nb",c\n1,2,3\n', 1),
        (b"a,b,c\r1,2,3\r\n1,2,3\n", 2),
        (b"a,b,c\r\n1,2,3\r\n", 1),
        (b"a,b,c\n\n1,2,3\n\n\n1,2,3", 2),
        (b"\xef\xbb\xbfa,b,c\n1,2,3\n", 1),
    ],
)
def test_headers_of_all_forms_are_no_rows(tmp_path: Path, content: bytes, rows: int) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    column = open_table(path).columns[0]
    assert read(path, {column: NUMBER}) == {column: np.ones(rows).tobytes()}


def test_the_row_with_too_few_values_is_named_in_any_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_tables, "BLOCK_BYTES", 40)
    path = tmp_path / "table.csv"
    path.write_text("age,sex,died\n" + "1,F,no\n\n" * 50 + '2,"two\nlines",no\n3,F\n')
    assert f"Expected 3 values in row 52 of {path}, as the header has, got 2" in refused(path)


def test_columns_that_arrow_does_not_understand_are_read_on_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_tables, "BLOCK_BYTES", 64)
    path = tmp_path / "table.csv"
    cells = [("  NA  " if row in (40, 80) else str(row), "  ? " if row == 60 else "1.5") for row in range(100)]
    path.write_text("a,b\n" + "".join(f"{a},{b}\n" for a, b in cells))
    wanted = {name: np.array([parse_number(row[index]) for row in cells]).tobytes() for index, name in enumerate("ab")}
    assert read(path, {"a": NUMBER, "b": NUMBER}) == wanted


# At a site.


def test_at_a_site_no_line_and_no_byte_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"age,sex,died\n30,F,no\n40,M\n50,M,yes,7\n60,\xfc,yes\n70,M,maybe\n")
    reader = open_table(path, private=True)
    found = encode(SMALL, reader, private=True)
    assert found.x.tolist() == [[1, -1, 0], [1, 0.5, 0], [1, 1, 1]]
    assert found.y is not None
    assert np.array_equal(found.y, [-1, 1, np.nan], equal_nan=True)
    assert (reader.skipped, found.counts.unknown) == (2, {"sex": 1, "died": 1})
    with pytest.raises(InputError, match="Expected 3 values in row 2"):
        encode(SMALL, path)


def test_at_a_site_nothing_is_guessed_from_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"Report\nage;sex;died\n30,5;F;no\n45.123;M;yes\nend of report;;\n")
    ages = {
        decimal: encode(SMALL, open_table(path, decimal=decimal, private=True), private=True).x[:, 1].tolist()
        for decimal in ("", ",")
    }
    assert ages[""] == pytest.approx([-0.975, -0.24385, 0])  # 45.123
    assert ages[","] == pytest.approx([-0.975, 2.5, 0])  # 45123, clipped; the last line is a row, without a target
    assert open_table(path).said == ["Below the rows, left out: 'end of report'."]
    assert open_table(path, private=True).said == []

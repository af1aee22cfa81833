"""At a site a row decides nothing but what is made of itself: neighbouring tables, with one row exchanged."""

from __future__ import annotations

import datetime
import io
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from fedvi import PVI, Budget, CustomModel, Gaussian
from fedvi.compiling import jnp
from fedvi.errors import InputError
from fedvi.inference import GradientSteps, PrivateClient, Public
from fedvi.privacy import FullBatchGaussian
from fedvi.privacy.ledger.overlap import Sketch
from fedvi.tables import BinaryTarget, Category, Number, NumberTarget, Schema, open_table
from fedvi.tables.encode import encode, sketch_of
from fedvi.tables.numbers import Date
from fedvi.tables.reading import csv_tables, site_files, text_files
from fedvi.tables.reading.source import Dialect

ROWS = 60
CHANGED = 23
"""The row that is exchanged."""

COLUMNS = (
    Number("age", 0, 100, 50, 20, missing="indicator", missing_values=("-9.9", "30", "4e1", "1,500")),
    Number("crp", 0, 60, 5, 5, limits=("<",)),
    Category("sex", ("F", "M"), unknown="other", missing="missing"),
)
SCHEMA = Schema(COLUMNS, BinaryTarget("died", ("no", "yes")))
COMMAS = Schema(COLUMNS, BinaryTarget("died", ("no", "yes")), dialect=Dialect(decimal=","))
NUMBERS = Schema(COLUMNS[1:], NumberTarget("age", 0, 100, 50, 20, missing_values=("30", "40.0")))
HEADER = ["age", "crp", "sex", "died"]

Cells = list[Any]


def people(seed: int = 0, decimal: str = ".") -> list[Cells]:
    rng = np.random.default_rng(seed)
    ages = rng.choice(["30", "30.0", "40", "-9.90", "45.123", "61", "1.5"], ROWS)
    crp = rng.choice(["0.5", "12.345", "3", "<0.6"], ROWS)
    rest = zip(rng.choice(["F", "M"], ROWS), rng.choice(["no", "yes"], ROWS), strict=True)
    return [
        [age.replace(".", decimal), dose.replace(".", decimal), *map(str, others)]
        for age, dose, others in zip(ages.tolist(), crp.tolist(), rest, strict=True)
    ]


def usable(schema: Schema, path: Path, dialect: Dialect | None = None) -> np.ndarray:
    """Return the rows that count, encoded with their targets."""
    found = encode(schema, open_table(path, dialect or schema.dialect, private=True), private=True)
    assert found.y is not None
    return np.column_stack([found.x, found.y])[~np.isnan(found.y)]


def all_but_one(schema: Schema, path: Path, rows: list[bytes], changed: bytes | None, dialect: Dialect | None) -> None:
    """Check that all other rows are what they are without the changed one."""
    head = rows[0]
    path.write_bytes(b"".join([head, *rows[1 : CHANGED + 1], *rows[CHANGED + 2 :]]))
    without = usable(schema, path, dialect)
    path.write_bytes(b"".join([head, *rows[1 : CHANGED + 1], changed or b"", *rows[CHANGED + 2 :]]))
    found = usable(schema, path, dialect)
    before = sum(line.split(b",")[0] != b"" for line in rows[1 : CHANGED + 1])
    after = len(without) - before
    np.testing.assert_array_equal(found[:before], without[:before])
    np.testing.assert_array_equal(found[len(found) - after :], without[before:])
    assert len(without) <= len(found) <= len(without) + 1


NASTY = [
    b"unknown,3,M,yes\n",
    b"k.A.,<5,M,yes\n",
    b"30,text,F,no\n",
    b'50,3,F,"yes\n',
    b'50,3,"F,yes\n',
    b'x"y,"z,F,yes\n',
    b'"50","3","F","yes"\n',
    b"1,2,3,4,5,6,7,8,1,1,1,1,1\n",
    b"50\n",
    b"\n",
    b"50,3,M\xfcller,yes\n",
    b"50,3,M\xfcller, Hans,yes\n",
    b"\xff\xfe\x00,3,\x00,yes\n",
    b"\xef\xbb\xbf50,3,F,yes\n",
    b"50,3," + b"x" * 300_000 + b",yes\n",
    b"50,3," + b"x" * 6_000_000 + b",yes\n",
    b"-" + b" " * 5000 + b"x,3,F,yes\n",
    b"50,3,F,yes\r",
    b"inf,1e400,F,yes\n",
    b"age,crp,sex,died\n",
    b"45,123,3,F,yes\n",
    b'"45,123","1.234,5",F,yes\n',
]


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("schema", [SCHEMA, COMMAS])
def test_no_line_of_a_text_file_changes_another_row_or_is_refused(
    small: bool, schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if small:  # blocks that end anywhere
        for module in (csv_tables, site_files, text_files):
            monkeypatch.setattr(module, "BLOCK_BYTES", 200)
        monkeypatch.setattr(csv, "ReadOptions", _whole_blocks(csv.ReadOptions))
    commas = schema.dialect.decimal == ","
    cells = people(decimal="," if commas else ".")
    lines = [(",".join(f'"{cell}"' if "," in cell else cell for cell in row) + "\n").encode() for row in cells]
    for changed in NASTY:
        if small and len(changed) > 400_000:
            continue
        all_but_one(schema, tmp_path / "t.csv", [",".join(HEADER).encode() + b"\n", *lines], changed, None)


def _whole_blocks(options: Any) -> Any:
    return lambda **how: options(**{**how, "block_size": 1 << 24})


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-16-be", "utf-32", "shift_jis", "gb18030", "mac_roman"])
def test_encodings_of_a_site_are_read_line_by_line(encoding: str, tmp_path: Path) -> None:
    lines = [",".join(row) + "\n" for row in [HEADER, *people()]]
    for text, bad in (("50,3,ü\n", b""), ("50,3,F,yes\n", b"\x81"), ("50,3,F,yes\n", b"\xd8\x3d\x00\x00")):
        mark = {"utf-16": "utf-16-le", "utf-32": "utf-32-le"}.get(encoding, encoding)
        changed = bad + text.encode(mark, "replace")
        if len("a".encode(mark)) > 1:
            changed = bad[: len(bad) // 4 * 4] + text.encode(mark)
        rows = [line.encode(mark) for line in lines]
        all_but_one(SCHEMA, tmp_path / "t.csv", rows, changed, Dialect(encoding=encoding))


@pytest.mark.parametrize("encoding", ["hz", "iso2022_jp", "utf-7", "unicode_escape", "raw_unicode_escape", "punycode"])
def test_encodings_in_which_a_row_may_change_others_are_refused_at_a_site(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("age,crp,sex,died\n1,2,F,no\n")
    with pytest.raises(InputError, match="Expected an encoding in which every line stands for itself"):
        open_table(path, encoding=encoding, private=True)


def workbook(path: Path, rows: list[Cells], header: Cells = HEADER) -> Path:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for row in [header, *rows]:
        sheet.append(row)
    book.save(path)
    return path


@pytest.mark.parametrize(
    "changed",
    [
        ["k.A.", 3.0, "F", "yes"],
        ["<5", "12,345", "F", True],
        [True, "x", 3, 45.123],
        [50.0, 3.0, "F", "yes", "a", "a", "a", 1, 1],
        [None, None, None, "yes"],
        [None, None, None, None],
        ["#DIV/0!", 3.0, "F", "no"],
    ],
)
@pytest.mark.parametrize("schema", [SCHEMA, COMMAS, NUMBERS])
def test_no_cell_of_a_workbook_changes_another_row(changed: Cells, schema: Schema, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    cells: list[Cells] = [
        [float(rng.choice([45.123, 30, 40, 61])), float(rng.choice([12.345, 3])), str(rng.choice(["F", "M"])), died]
        for died in rng.choice(["no", "yes"], ROWS).tolist()
    ]
    for at in (CHANGED, ROWS - 1, 0):
        without = usable(schema, workbook(tmp_path / "a.xlsx", cells[:at] + cells[at + 1 :]))
        found = usable(schema, workbook(tmp_path / "b.xlsx", [*cells[:at], changed, *cells[at + 1 :]]))
        before = len(usable(schema, workbook(tmp_path / "c.xlsx", cells[:at]))) if at else 0
        after = len(without) - before
        np.testing.assert_array_equal(found[:before], without[:before])
        np.testing.assert_array_equal(found[len(found) - after :], without[before:])


def test_truth_values_beside_other_cells_of_a_workbook_are_what_they_are_alone(tmp_path: Path) -> None:
    schema = Schema((Number("age", 0, 1, 0, 1), *COLUMNS[1:]), SCHEMA.target)
    cells: list[Cells] = [[row % 2 == 0, 3.0, "F", "no"] for row in range(ROWS)]
    alone = usable(schema, workbook(tmp_path / "a.xlsx", cells))
    cells[-1] = ["text", 3.0, "F", "no"]
    np.testing.assert_array_equal(usable(schema, workbook(tmp_path / "b.xlsx", cells))[:-1], alone[:-1])
    assert set(alone[:, 1]) == {0.0, 1.0}


@pytest.mark.parametrize("kind", ["binary", "string"])
@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_bytes_that_are_no_text_are_refused_in_no_file_of_a_site(kind: str, ending: str, tmp_path: Path) -> None:
    cells = people()
    columns = {name: [row[at].encode() for row in cells] for at, name in enumerate(HEADER)}
    columns["note"] = [b"fine"] * ROWS
    good, bad = columns, {**columns, "sex": [*columns["sex"][:-1], b"\xff"], "note": [b"\xfe"] * ROWS}
    found = []
    for number, content in enumerate((good, bad)):
        arrays = [pa.array(values, pa.binary()) for values in content.values()]
        if kind == "string":
            arrays = [pa.Array.from_buffers(pa.string(), ROWS, array.buffers()) for array in arrays]
        table, path = pa.table(arrays, names=list(content)), tmp_path / f"{number}{ending}"
        if ending == ".parquet":
            parquet.write_table(table, path)
        else:
            with pa.ipc.new_file(path, table.schema) as file:
                file.write_table(table)
        found.append(usable(SCHEMA, path))
        assert isinstance(sketch_of(SCHEMA, path, b"k" * 16), Sketch)  # reads all columns
    np.testing.assert_array_equal(found[0][:-1], found[1][:-1])


def test_the_same_people_are_known_whatever_one_of_them_holds(tmp_path: Path) -> None:
    """A word among numbers does not change how other numbers are hashed."""
    rng = np.random.default_rng(1)
    rows = [[f"{rng.uniform(20, 90):.3f}".replace(".", ","), "3", "F", "no"] for _ in range(400)]

    def sketch(rows: list[Cells]) -> Sketch:
        path, text = tmp_path / "t.csv", io.StringIO()
        text.write(";".join(HEADER) + "\n")
        text.writelines(";".join(row) + "\n" for row in rows)
        path.write_text(text.getvalue())
        return sketch_of(COMMAS, path, b"k" * 16)

    before = sketch(rows)
    assert before.overlap(sketch([["unknown", "3", "F", "no"], *rows[1:]])).is_noticed
    assert not before.overlap(sketch([[f"{value},5", "4", "M", "yes"] for value in range(400)])).is_noticed


def test_lines_that_are_no_rows_are_counted_once(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = [",".join(row) for row in [HEADER, *people(), ["1", "2", "F", "no", "5"], ["text", '"2', "F", "no"]]]
    path.write_text("\n".join(lines) + "\n")
    counts = encode(SCHEMA, open_table(path, private=True), private=True).counts
    assert (counts.rows, counts.skipped) == (ROWS, 2)
    assert any("2 left out" in line for line in counts.lines({})[0])


def unlucky(w: Any, x: Any, y: Any) -> Any:
    return y * jnp.log(jnp.sum(x) - 1) - w[0]


def test_people_of_a_site_are_told_of_rows_for_which_the_model_is_nan_and_nothing_else_depends_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_source(*_: Any, **__: Any) -> str:
        raise UnicodeDecodeError("utf-8", b"x", 0, 1, "a source file of another encoding")

    x, y = np.full((50, 1), 2.0), np.ones(50)
    public = Public(Gaussian.standard(1), jnp.asarray(1.0), jnp.asarray(50.0))
    solver = GradientSteps(2, 0.5, FullBatchGaussian(1.0, 5.0))
    found = []
    for name, first in (("fine", 2.0), ("nan", 0.0)):
        x[0] = first
        site = PrivateClient.open(
            tmp_path / name, (x, y), CustomModel(unlucky), PVI(solver), public, Budget(5.0, 1e-3), updates=2
        )
        with site as client:
            client.update(Gaussian.standard(1))
            found.append(client.noticed)
            with monkeypatch.context() as without:
                without.setattr(Path, "read_text", no_source)
                assert len(client.noticed) == len(found[-1])  # what cannot be told is left out
    assert found[0] == ()
    assert "the model gives no number for 1 rows under the prior: they count as nothing" in found[1][0]
    assert "jnp.log(jnp.sum(x) - 1)" in found[1][0]


def test_no_cell_changes_the_class_of_another_row_of_a_workbook(tmp_path: Path) -> None:
    """Numbers as classes, truth values beside 0 and 1, and a cell that is neither number nor text nor date."""
    columns = (Category("dose", ("1.125", "2.375", "4.5")), Category("smokes", ("false", "true")))
    schema = Schema((Number("age", 0, 99, 50, 20), *columns), SCHEMA.target)
    header = ["age", "dose", "smokes", SCHEMA.target.name]
    cells: list[Cells] = [
        [30.0, [1.125, 2.375, 4.5][row % 3], [True, 1, False, 0][row % 4], "no"] for row in range(ROWS)
    ]
    expected = [[row % 3 == 1, row % 3 == 2, row % 4 < 2] for row in range(ROWS)]
    alone = usable(schema, workbook(tmp_path / "a.xlsx", cells, header))
    np.testing.assert_array_equal(alone[:, 2:5], expected)
    hour = datetime.timedelta(hours=1)
    cells[-1] = [hour, "none", "perhaps", "no"]
    np.testing.assert_array_equal(usable(schema, workbook(tmp_path / "b.xlsx", cells, header))[:-1], alone[:-1])
    cells[-1] = [30.0, hour, hour, "no"]
    np.testing.assert_array_equal(usable(schema, workbook(tmp_path / "c.xlsx", cells, header))[:-1], alone[:-1])


@pytest.mark.parametrize(("value", "form"), [(202401311230, "[h]:mm"), (-202401311230, "yyyy-mm-dd")])
def test_a_cell_that_cannot_be_read_is_an_empty_row(value: int, form: str, tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    rows: list[Cells] = [[30.0, 3.0, "F", "no", 0.5] for _ in range(ROWS)]
    alone = usable(SCHEMA, workbook(path, rows, [*HEADER, "note"]))
    rows[CHANGED][-1] = value
    book = openpyxl.load_workbook(workbook(path, rows, [*HEADER, "note"]))
    assert book.active is not None
    book.active.cell(CHANGED + 2, 5).number_format = form
    book.save(path)
    np.testing.assert_array_equal(usable(SCHEMA, path), alone[1:])  # all rows are the same
    with pytest.raises(InputError, match=f"cells that can be read in line {CHANGED + 2}"):
        open_table(path)


@pytest.mark.parametrize("decimal", [".", ","])
def test_a_long_number_is_the_same_beside_a_word(decimal: str, tmp_path: Path) -> None:
    schema = Schema(
        (Number("age", 0, 100, 50, 20, missing="indicator"),), SCHEMA.target, dialect=Dialect(decimal=decimal)
    )
    found = []
    for last in ("30", "unknown"):
        path = tmp_path / "a.csv"
        path.write_text(f"age;died\n1{decimal}{'5' * 70};yes\n{last};no\n")
        found.append(encode(schema, path, private=True).x[0].tolist())
    assert found[0] == found[1]
    assert found[0][2] == 0


@pytest.mark.parametrize(
    "kind", [pa.binary_view(), pa.string_view(), pa.binary(), pa.dictionary(pa.int32(), pa.binary())]
)
@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_no_type_of_text_refuses_bytes_that_are_none(kind: pa.DataType, ending: str, tmp_path: Path) -> None:
    schema, found = Schema((Number("age", 0, 9, 0, 1),), SCHEMA.target), []
    for last in (b"3", b"\xff"):
        plainly = pa.array([b"1", b"2", last], pa.binary())
        ages = plainly.dictionary_encode() if pa.types.is_dictionary(kind) else plainly.cast(kind, safe=False)
        table, path = pa.table({"age": ages, "died": ["no", "yes", "no"]}), tmp_path / f"a{ending}"
        if ending == ".parquet":
            parquet.write_table(table, path)
        else:
            with pa.ipc.new_file(path, table.schema) as file:
                file.write_table(table)
        found.append(encode(schema, path, private=True).x[:2])
    np.testing.assert_array_equal(found[0], found[1])


def test_marks_and_quotation_marks_above_rows_decide_nothing(tmp_path: Path) -> None:
    schema, path = Schema((Number("age", 0, 100, 50, 20, missing="indicator"),), SCHEMA.target), tmp_path / "a.csv"

    def rows(text: str) -> list[list[float]]:
        path.write_text(text, encoding="utf-8")
        found: list[list[float]] = encode(schema, path, private=True).x.tolist()
        return found

    marked = "\ufeff\ufeff50,yes\n"
    assert rows(f"age,died\n{marked}") == rows(f"age,died\n20,no\n{marked}")[1:] == [[1.0, 0.0, 0.0]]
    title = '"Report\nage,died\n50,yes\n20,'
    for last in ("no\n", 'n",a,a,a\n', "x" * 140_000 + "\n"):
        assert rows(title + last)[0] == [1.0, 0.0, 0.0]
    for tail in ("50,yes,a\n" * 30, "50,yes,a\n" * 20 + '50,yes,a"\n' + "50,yes,a\n" * 9):
        with pytest.raises(InputError):  # the header alone says so
            rows('age,died,"note\n' + tail)


@pytest.mark.parametrize("odd", ["x", 2**60, b"\xff", None, {"a": 1}, [1], "\ud800", 1.5, True, float("inf")])
@pytest.mark.parametrize(
    ("column", "base"),
    [
        (Number("v", 0, 5, 0, 1), [True, False, True]),
        (Number("v", 0, 5, 0, 1), [1.5, 2.5, 3]),
        (Number("v", 0, 5, 0, 1), [None, None, None]),
        (Category("v", ("2.5", "1.125")), [1.125, 2.5, 2.5]),
        (Date("v", 8000, 9000, 8795, 1), [datetime.datetime(2024, 1, 31, 23, 30)] * 3),
    ],
)
@pytest.mark.parametrize("frame", [False, True])
def test_no_cell_of_a_dictionary_changes_another_row(column: Any, base: Cells, odd: Any, frame: bool) -> None:
    schema, found = Schema((column,), SCHEMA.target), []
    for cells in (base, [*base[:2], odd]):
        columns: Any = {"v": cells, "died": ["no", "yes", "no"]}
        source = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})
        found.append(encode(schema, source if frame else columns, private=True).x[:2])
    np.testing.assert_array_equal(found[0], found[1])

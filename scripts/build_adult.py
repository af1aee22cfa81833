"""Build the shipped form of UCI Adult from the two published files, plain or .xz.

    python scripts/build_adult.py adult.data adult.test

The originals must have the published checksums. The output is the same to the byte on every machine: codes packed into
bits, no compressor (whose bytes change with its version), no time stamps. `fedvi.datasets.adult` describes the layout.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import lzma
import zipfile
from pathlib import Path

import numpy as np

from fedvi.datasets.adult import FILE, SHA256, TARGET

COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"),
    *("race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country"),
)
NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
ORIGINALS = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
}
"""SHA-256 of the published files, uncompressed."""


def read_original(path: Path, name: str) -> str:
    """Return the text of a published file, plain or .xz, after a check of its checksum."""
    data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != ORIGINALS[name]:
        raise SystemExit(
            f"Expected {path} to be {name} with sha256 {ORIGINALS[name]}, got {found}. "
            "Download it again from https://doi.org/10.24432/C5XW20."
        )
    return data.decode("ascii")


def parse(text: str) -> list[list[str]]:
    """Return the fields of every row; comments, empty lines and the full stops of adult.test fall away."""
    lines = [line.rstrip(".") for line in text.splitlines() if line and not line.startswith("|")]
    return [line.split(", ") for line in lines]


def encode(name: str, column: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return the sorted distinct values of a column, and its codes as bit planes."""
    values, codes = np.unique(np.array(column, np.int32 if name in NUMBERS else str), return_inverse=True)
    places = np.arange((len(values) - 1).bit_length())
    planes = np.packbits((codes >> places[:, None] & 1).astype(np.uint8), axis=1)
    return {f"{name}.values": values.astype(values.dtype.newbyteorder("<")), f"{name}.planes": planes}


def pack(rows: list[list[str]]) -> bytes:
    """Return the bytes of the .npz file."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        for name, column in zip((*COLUMNS, TARGET), zip(*rows, strict=True), strict=True):
            for key, array in encode(name, column).items():
                member = zipfile.ZipInfo(f"{key}.npy")  # dated 1980
                member.create_system, member.external_attr = 3, 0o644 << 16  # not the system on which it was built
                content = io.BytesIO()
                np.lib.format.write_array(content, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
                file.writestr(member, content.getvalue())
    return archive.getvalue()


def main() -> None:
    """Read the originals, write the packed file, say its size and checksum."""
    parser = argparse.ArgumentParser(description="Build the shipped form of UCI Adult.")
    parser.add_argument("adult_data", type=Path, metavar="ADULT_DATA", help="the published adult.data, plain or .xz")
    parser.add_argument("adult_test", type=Path, metavar="ADULT_TEST", help="the published adult.test, plain or .xz")
    default = Path(__file__).parent.parent / "src" / "fedvi" / "datasets" / FILE
    parser.add_argument("--out", type=Path, default=default, metavar="FILE", help="where to write (in the package)")
    given = parser.parse_args()
    packed = pack(
        parse(read_original(given.adult_data, "adult.data")) + parse(read_original(given.adult_test, "adult.test"))
    )
    given.out.write_bytes(packed)
    checksum = hashlib.sha256(packed).hexdigest()
    print(f"{given.out.name}: {len(packed):,} bytes, sha256 {checksum}")
    if checksum != SHA256:
        print("The layout changed: put this checksum into adult.py and adult.md.")


if __name__ == "__main__":
    main()

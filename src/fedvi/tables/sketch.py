"""A sketch of a raw table (`fedvi.privacy.ledger.overlap`): all of its columns, also those that no schema asks for."""

from __future__ import annotations

import numpy as np

from fedvi.privacy.ledger.overlap import Sketch, number_hashes, text_hashes
from fedvi.tables.read import NUMBER, TEXT, Kind, Source, open_table
from fedvi.tables.schema import Schema
from fedvi.tables.words import NotANumber


def sketch_of(schema: Schema, source: Source, key: bytes, *, encoding: str = "utf-8") -> Sketch:
    """Return the sketch of a table. schema: which columns are numbers; others are looked at as text, value by value."""
    reader = open_table(source, encoding=encoding)
    kinds = {name: kind for part in (*schema.columns, schema.target) for name, kind in part.reads.items()}
    wanted: dict[str, Kind] = {name: kinds.get(name, TEXT) for name in reader.columns}
    while True:
        try:
            return Sketch.of(
                [
                    number_hashes(chunk.numbers[name], key)
                    if kind == NUMBER
                    else text_hashes(np.asarray(chunk.texts[name].codes), chunk.texts[name].values, key)
                    for name, kind in wanted.items()
                ]
                for chunk in reader.chunks(wanted)
            )
        except NotANumber as error:
            if wanted[error.column] == TEXT:
                raise
            wanted[error.column] = TEXT

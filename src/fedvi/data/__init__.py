"""Data: tables and the schema that encodes them; clients' rows, laid out; UCI Adult; partitions over clients."""

from fedvi.data.adult import Adult, Split, load_adult, paper_split, validation_split
from fedvi.data.clients import (
    CheckedTable,
    Clients,
    Site,
    Table,
    check_feature_bound,
    check_table,
    check_tables,
    lay_out,
    usable_rows,
)
from fedvi.data.columns import BinaryTarget, Category, Number, NumberTarget
from fedvi.data.encoding import Counts, Encoded, encode, encode_chunks
from fedvi.data.infer import Inferred, infer_schema
from fedvi.data.paper_partition import DISTRIBUTIONS, PaperPartition, distribution
from fedvi.data.partition import ByColumn, DirichletLabels, Iid, Partition, QuantitySkew, distribute
from fedvi.data.schema import Schema
from fedvi.data.tables import open_table

__all__ = [
    "DISTRIBUTIONS",
    "Adult",
    "BinaryTarget",
    "ByColumn",
    "Category",
    "CheckedTable",
    "Clients",
    "Counts",
    "DirichletLabels",
    "Encoded",
    "Iid",
    "Inferred",
    "Number",
    "NumberTarget",
    "PaperPartition",
    "Partition",
    "QuantitySkew",
    "Schema",
    "Site",
    "Split",
    "Table",
    "check_feature_bound",
    "check_table",
    "check_tables",
    "distribute",
    "distribution",
    "encode",
    "encode_chunks",
    "infer_schema",
    "lay_out",
    "load_adult",
    "open_table",
    "paper_split",
    "usable_rows",
    "validation_split",
]

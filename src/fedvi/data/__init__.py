"""Data: clients' rows, checked and laid out; UCI Adult; partitions of one table over clients."""

from fedvi.data.adult import Adult, Split, load_adult, paper_split, validation_split
from fedvi.data.clients import CheckedTable, Clients, Site, Table, check_table, check_tables, lay_out
from fedvi.data.paper_partition import DISTRIBUTIONS, PaperPartition, distribution
from fedvi.data.partition import ByColumn, DirichletLabels, Iid, Partition, QuantitySkew, distribute

__all__ = [
    "DISTRIBUTIONS",
    "Adult",
    "ByColumn",
    "CheckedTable",
    "Clients",
    "DirichletLabels",
    "Iid",
    "PaperPartition",
    "Partition",
    "QuantitySkew",
    "Site",
    "Split",
    "Table",
    "check_table",
    "check_tables",
    "distribute",
    "distribution",
    "lay_out",
    "load_adult",
    "paper_split",
    "validation_split",
]

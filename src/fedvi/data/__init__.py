"""Data: clients' rows, checked and laid out."""

from fedvi.data.clients import CheckedTable, Clients, Site, Table, check_table, check_tables, lay_out

__all__ = ["CheckedTable", "Clients", "Site", "Table", "check_table", "check_tables", "lay_out"]

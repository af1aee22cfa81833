"""Data: clients' rows, checked and laid out."""

from fedvi.data.clients import Clients, Site, Table, check_table, lay_out, named

__all__ = ["Clients", "Site", "Table", "check_table", "lay_out", "named"]

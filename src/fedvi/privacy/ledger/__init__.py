"""The ledger: what the data has paid, on disk before anything is drawn."""

from fedvi.tables.columns import (
    BinaryTarget as BinaryTarget,
)
from fedvi.tables.columns import (
    Category as Category,
)
from fedvi.tables.columns import (
    Number as Number,
)
from fedvi.tables.columns import (
    NumberTarget as NumberTarget,
)
from fedvi.tables.encode import Encoded as Encoded
from fedvi.tables.infer import infer_schema as infer_schema
from fedvi.tables.read import open_table as open_table
from fedvi.tables.schema import Schema as Schema

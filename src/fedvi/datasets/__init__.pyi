from fedvi.datasets.adult import (
    Adult as Adult,
)
from fedvi.datasets.adult import (
    load_adult as load_adult,
)
from fedvi.datasets.adult import (
    paper_split as paper_split,
)
from fedvi.datasets.adult import (
    validation_split as validation_split,
)
from fedvi.datasets.paper_partition import PaperPartition as PaperPartition
from fedvi.datasets.partitions import (
    ByColumn as ByColumn,
)
from fedvi.datasets.partitions import (
    DirichletLabels as DirichletLabels,
)
from fedvi.datasets.partitions import (
    Iid as Iid,
)
from fedvi.datasets.partitions import (
    Partition as Partition,
)
from fedvi.datasets.partitions import (
    QuantitySkew as QuantitySkew,
)
from fedvi.datasets.partitions import (
    distribute as distribute,
)

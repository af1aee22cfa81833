from fedvi.simulation.results import Checkpoint as Checkpoint
from fedvi.simulation.results import History as History
from fedvi.simulation.results import Result as Result
from fedvi.simulation.schedules import (
    Asynchronous as Asynchronous,
)
from fedvi.simulation.schedules import (
    EventDriven as EventDriven,
)
from fedvi.simulation.schedules import (
    Paced as Paced,
)
from fedvi.simulation.schedules import (
    RoundRobin as RoundRobin,
)
from fedvi.simulation.schedules import (
    Schedule as Schedule,
)
from fedvi.simulation.schedules import (
    Synchronous as Synchronous,
)
from fedvi.simulation.schedules import (
    Turn as Turn,
)
from fedvi.simulation.simulate import simulate_all as simulate_all

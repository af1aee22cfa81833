from fedvi.inference.algorithms import (
    PVI as PVI,
)
from fedvi.inference.algorithms import (
    Algorithm as Algorithm,
)
from fedvi.inference.algorithms import (
    CentralisedVI as CentralisedVI,
)
from fedvi.inference.algorithms import (
    Committee as Committee,
)
from fedvi.inference.algorithms import (
    GlobalVI as GlobalVI,
)
from fedvi.inference.exact import Exact as Exact
from fedvi.inference.gradient_steps import (
    GradientSteps as GradientSteps,
)
from fedvi.inference.gradient_steps import (
    adagrad as adagrad,
)
from fedvi.inference.local_problem import Draws as Draws
from fedvi.inference.local_problem import Problem as Problem
from fedvi.inference.local_problem import Public as Public
from fedvi.inference.local_problem import Solver as Solver
from fedvi.inference.metrics import evaluate as evaluate
from fedvi.inference.noise_aware import AveragedQuadratics as AveragedQuadratics
from fedvi.inference.noise_aware import NoiseAwarePVI as NoiseAwarePVI
from fedvi.inference.private_client import PrivateClient as PrivateClient
from fedvi.inference.server import Server as Server
from fedvi.inference.update import ClientState as ClientState
from fedvi.inference.update import Release as Release

from fedvi.errors import FedviError as FedviError
from fedvi.families.full import FullGaussian as FullGaussian
from fedvi.families.mean_field import Gaussian as Gaussian
from fedvi.fitting.fit import fit as fit
from fedvi.fitting.fitted import Fitted as Fitted
from fedvi.inference.algorithms import PVI as PVI
from fedvi.inference.asking import NoiseAwarePVI as NoiseAwarePVI
from fedvi.models.custom import CustomModel as CustomModel
from fedvi.models.linear import LinearRegression as LinearRegression
from fedvi.models.logistic import LogisticRegression as LogisticRegression
from fedvi.privacy.budget import Budget as Budget
from fedvi.privacy.ledger.ledger import Ledger as Ledger
from fedvi.simulation.simulate import simulate as simulate
from fedvi.simulation.simulate import simulate_all as simulate_all
from fedvi.tables.inferring.infer import infer_schema as infer_schema
from fedvi.tables.schema import Schema as Schema

__version__: str

from fedvi.fitting.fitted import Coefficient as Coefficient
from fedvi.fitting.fitted import Fitted as Fitted
from fedvi.fitting.fitted import SiteRecord as SiteRecord
from fedvi.tables.targets import Predictions as Predictions

from fedvi.fitting.fitted import Fitted as Fitted
from fedvi.fitting.records import Coefficient as Coefficient
from fedvi.fitting.records import SiteRecord as SiteRecord
from fedvi.tables.targets import Predictions as Predictions

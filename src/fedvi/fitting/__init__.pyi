from fedvi.fitting.fitted import Coefficient as Coefficient
from fedvi.fitting.fitted import Fitted as Fitted
from fedvi.fitting.fitted import Predictions as Predictions
from fedvi.fitting.fitted import SiteRecord as SiteRecord

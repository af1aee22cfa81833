from fedvi.privacy.accounting import epsilon as epsilon
from fedvi.privacy.batch import Batch as Batch
from fedvi.privacy.budget import Budget as Budget
from fedvi.privacy.budget import Calibration as Calibration
from fedvi.privacy.budget import calibrate as calibrate
from fedvi.privacy.budget import noise_for as noise_for
from fedvi.privacy.client_level import ClientLevel as ClientLevel
from fedvi.privacy.ledger.ledger import Ledger as Ledger
from fedvi.privacy.mechanism import (
    FullBatchGaussian as FullBatchGaussian,
)
from fedvi.privacy.mechanism import (
    GaussianMechanism as GaussianMechanism,
)
from fedvi.privacy.mechanism import (
    Mechanism as Mechanism,
)
from fedvi.privacy.mechanism import (
    PoissonGaussian as PoissonGaussian,
)
from fedvi.privacy.without_privacy import FullBatch as FullBatch
from fedvi.privacy.without_privacy import Minibatch as Minibatch

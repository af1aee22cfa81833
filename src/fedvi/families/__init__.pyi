from fedvi.families.base import Factor as Factor
from fedvi.families.base import GaussianFamily as GaussianFamily
from fedvi.families.full import FullGaussian as FullGaussian
from fedvi.families.mean_field import Gaussian as Gaussian
from fedvi.families.messages import Messages as Messages

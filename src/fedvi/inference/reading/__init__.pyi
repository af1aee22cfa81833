from fedvi.inference.reading.base import Plan as Plan
from fedvi.inference.reading.base import Reading as Reading
from fedvi.inference.reading.base import choose_covariance as choose_covariance
from fedvi.inference.reading.choice import read as read
from fedvi.inference.reading.moments import moments_needed as moments_needed

"""A whole federation on one machine: real processes, real certificates, somebody who kills them, and a clock."""

from fedvi.demo.checking import Check
from fedvi.demo.local import LocalFederation
from fedvi.demo.run import Outcome, demonstrate
from fedvi.demo.speed import Speed, measure_speed

__all__ = ["Check", "LocalFederation", "Outcome", "Speed", "demonstrate", "measure_speed"]

"""Gaussians in natural parameters, and the algebra of factors."""

from fedvi.gaussian.factor import Coordinates, Factor, GaussianFamily, extent, require_proper
from fedvi.gaussian.full import FullGaussian
from fedvi.gaussian.mean_field import Gaussian
from fedvi.gaussian.noisy import NoisyGaussian

__all__ = [
    "Coordinates",
    "Factor",
    "FullGaussian",
    "Gaussian",
    "GaussianFamily",
    "NoisyGaussian",
    "extent",
    "require_proper",
]

"""The general form of FedHAW: any differentiable aggregation, its coefficients learnt online."""

from fedhaw.hypergradient.coefficients import log_shares
from fedhaw.hypergradient.models import Models
from fedhaw.hypergradient.rule import HypergradientRule
from fedhaw.hypergradient.state import HypergradientState

__all__ = ["HypergradientRule", "HypergradientState", "Models", "log_shares"]

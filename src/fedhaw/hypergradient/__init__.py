"""The general form of FedHAW: any differentiable aggregation, its coefficients learnt online."""

from fedhaw.hypergradient.models import Models
from fedhaw.hypergradient.rule import HypergradientRule
from fedhaw.hypergradient.state import HypergradientState
from fedhaw.rules.logits import log_shares

__all__ = ["HypergradientRule", "HypergradientState", "Models", "log_shares"]

"""The same rules inside Flower, for deployments on real machines.

`RuleStrategy` needs NumPy only, whatever framework the clients use. `fedhaw.flower.client` has a
ready ClientApp for fedhaw's own models and client updates; it needs torch.
"""

from fedhaw.checkpoints import CheckpointError
from fedhaw.flower.errors import EverybodyLost, FlowerError, NoNodes, UnsupportedArrays
from fedhaw.flower.layout import WireLayout
from fedhaw.flower.proxy import array_proxy
from fedhaw.flower.strategy import RuleStrategy
from fedhaw.rules.private import Privacy
from fedhaw.settings import InvalidSetting

__all__ = [
    "CheckpointError",
    "EverybodyLost",
    "FlowerError",
    "InvalidSetting",
    "NoNodes",
    "Privacy",
    "RuleStrategy",
    "UnsupportedArrays",
    "WireLayout",
    "array_proxy",
]

"""What is kept of a run so that it can go on: for the simulator, for Flower, and for rules' states.

A checkpoint is a mapping of named parts (model, rule state, clients' memories, ...), each of them
arrays and plain JSON. All parts are written to one file, together or not at all.
"""

from fedhaw.checkpoints.file import read, write
from fedhaw.checkpoints.parts import CheckpointError, DamagedCheckpoint, Part, Parts
from fedhaw.checkpoints.store import CheckpointStore

__all__ = [
    "CheckpointError",
    "CheckpointStore",
    "DamagedCheckpoint",
    "Part",
    "Parts",
    "read",
    "write",
]

"""Who is asked in a round."""

import numpy as np

# Keeps these draws apart from those of the uplink, which come from the same seed.
_STREAM = 100


def cohort_of(seed: int, round_index: int, clients: int, size: int | None) -> list[int]:
    """The clients of one round, in ascending order; depends on nothing but the arguments.

    Args:
        seed: of the run.
        round_index: which round.
        clients: K, how many there are.
        size: how many are asked, drawn without replacement; None for all.
    """
    if size is None or size >= clients:
        return list(range(clients))
    sequence = np.random.SeedSequence(seed, spawn_key=(_STREAM, round_index))
    lots = np.random.Generator(np.random.PCG64(sequence)).random(clients)
    drawn = np.argpartition(lots, size - 1)[:size]
    return sorted(int(client) for client in drawn)

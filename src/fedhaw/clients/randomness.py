"""Where a client's random numbers come from: (seed, client, round), and nothing else."""

from typing import Any

import numpy as np
import torch


def client_seed(seed: int, client: int, round_index: int) -> int:
    """A 63-bit seed that belongs to one client in one round."""
    entropy: Any = (seed, client, round_index)
    if max(entropy) < 2**32:
        # The words into which numpy would cut these integers, in half of its time.
        entropy = np.array(entropy, np.uint32)
    low, high = np.random.SeedSequence(entropy).generate_state(2).tolist()
    return int(high << 32 | low) >> 1


def client_generator(seed: int, client: int, round_index: int) -> torch.Generator:
    """A CPU generator that belongs to one client in one round."""
    return torch.Generator().manual_seed(client_seed(seed, client, round_index))


def seed_all_draws(seed: int, device: torch.device | str) -> None:
    """The seeding of whatever draws from a generator of torch's own, such as dropout.

    `torch.manual_seed` also asks every kind of accelerator, and where it is not in use each takes
    down the stack of who asked: a millisecond, longer than the step of a small model.
    """
    if torch.device(device).type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)

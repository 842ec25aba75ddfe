"""A plain PyTorch loop with a DataLoader for each client, as the letter's authors write it."""

import copy

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Subset, TensorDataset

from simulation_peers.workload import Rounds, Workload


def rounds(work: Workload) -> Rounds:
    samples = TensorDataset(work.x, work.y)
    loaders = [
        DataLoader(Subset(samples, part.tolist()), batch_size=work.batch, shuffle=True)
        for part in work.parts
    ]
    model = work.module()
    draw = np.random.default_rng(0)
    while True:
        cohort = draw.choice(len(loaders), work.cohort, replace=False)
        total = sum(len(work.parts[k]) for k in cohort)
        trained = []
        for k in cohort:
            local = copy.deepcopy(model)
            optimiser = torch.optim.SGD(local.parameters(), lr=work.eta)
            for x, y in loaders[k]:
                optimiser.zero_grad()
                cross_entropy(local(x), y).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
            trained.append((len(work.parts[k]) / total, local.state_dict()))
        state = model.state_dict()
        for name in state:
            state[name] = sum(share * other[name] for share, other in trained)
        model.load_state_dict(state)
        yield

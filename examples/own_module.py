"""A torch module of your own, with batch norm, trained by ten clients.

Every trainable parameter travels. Batch norm's running means and variances are measured, not
learnt: with `buffers="average"` they travel and are averaged, but no rule learns or scales them;
with `buffers="batch"` (the letter's way) they stay at home, and evaluation uses the batch's own.

`fedhaw run --model examples/own_module.py:SmallNet` does the same from a shell.
"""

import torch
from torch import Tensor, nn

import fedhaw


class SmallNet(nn.Module):
    """Two convolutions with batch norm, a linear layer: (N, 1, 28, 28) to (N, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 16, 5, stride=2),
            nn.BatchNorm2d(16),
            nn.ReLU(),
        )
        self.classes = nn.Linear(16 * 4 * 4, 10)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.classes(self.features(x).flatten(1))
        return scores


if __name__ == "__main__":
    torch.manual_seed(0)
    history = fedhaw.simulate(
        fedhaw.FedHAWAuto(),
        "mnist-5k",
        model=SmallNet(),  # its values are the first global model
        buffers="average",
        train_samples=1000,
        alpha=1.0,
        eta=0.05,
        rounds=8,
    )
    print(f"{history.run.parameters} numbers travel; accuracy {history.accuracy[-1]:.3f}")

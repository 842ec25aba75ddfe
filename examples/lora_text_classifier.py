"""A Hugging Face text classifier of which only LoRA adapters and the head travel.

The transformer is tiny and random, so nothing is downloaded; `from_pretrained` fits in its place.
A rule may touch the arrays with `requires_grad`, which are the vector it sees. Its scale exp(gamma)
cannot reach what is frozen: embeddings, layer norms (near 1 for a reason), pre-trained matrices.
"""

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, BertConfig

import fedhaw
from fedhaw.data import Dataset, from_table
from fedhaw.settings import Settings


class LoRA(nn.Module):
    """A frozen linear layer with a trainable correction of rank r: x W' + x (B A)'."""

    def __init__(self, frozen: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.A = nn.Parameter(torch.randn(rank, frozen.in_features) / rank)
        self.B = nn.Parameter(torch.zeros(frozen.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(self.frozen(x), x @ self.A.T @ self.B.T)


class TextNet(nn.Module):
    """(N, 16) tokens, which travel as floats, to (N, 2) scores."""

    def __init__(self) -> None:
        super().__init__()
        tiny = BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2)
        self.bert: nn.Module = AutoModelForSequenceClassification.from_config(tiny)
        self.bert.requires_grad_(False).get_submodule("classifier").requires_grad_(True)
        for name, layer in list(self.bert.named_modules()):
            if isinstance(layer, nn.Linear) and name.endswith(("query", "value")):
                self.bert.set_submodule(name, LoRA(layer))

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.bert(input_ids=x.long()).logits)


def texts() -> Dataset:
    """500 texts of 16 words, held by two offices; those of class 0 have the word 7 in them."""
    words = np.random.default_rng(0).integers(8, 50, (500, 16))
    words[::2, 3] = 7
    return from_table(words, np.arange(500) % 2, "texts", holders=np.arange(500) // 250)


if __name__ == "__main__":
    how: Settings = {"client_update": "adam", "eta": 0.01, "batch": 16, "rounds": 8}
    how["model"], how["split"], how["engine"] = TextNet, "holders", "sequential"
    history = fedhaw.simulate(fedhaw.FedHAWAuto(), texts(), **how)
    print(f"{history.run.parameters} numbers travel; accuracy {history.accuracy[-1]:.3f}")

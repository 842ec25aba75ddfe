"""Training asks the system for memory once, not in every step."""

import subprocess
import sys

import pytest

STEPS = """
import resource, torch
from torch.nn.functional import cross_entropy
from fedhaw.models import Layout
from fedhaw.models.learner import ModuleLearner
from fedhaw.models.resnet import resnet18
torch.set_num_threads(1)
module = resnet18(10, width=8)
layout = Layout.of(module)
learner = ModuleLearner(module, layout, cross_entropy)
learner.start(layout.flatten(module))
x, y = torch.randn(64, 3, 32, 32), torch.zeros(64, dtype=torch.long)
def faults(steps):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(steps):
        learner.descend(x, y, 0.01)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / steps
faults(4)
print(faults(4))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc's heap is told what to keep")
def test_a_step_of_training_hardly_asks_for_new_pages() -> None:
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 1000  # without it: 4,000 and more


def test_a_system_without_glibc_trains_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedhaw.models import heap

    heap.keep_freed_memory.cache_clear()
    monkeypatch.setattr("fedhaw.models.heap.os.name", "nt")
    try:
        assert heap.keep_freed_memory() is False
    finally:
        heap.keep_freed_memory.cache_clear()

"""Memory of old results serves new ones, but never while somebody holds it."""

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from suite import BACKENDS

from fedhaw.rules import FedAvg, FedHAWAuto, Round, memory

P = 1_000_000


@pytest.fixture(autouse=True)
def nothing_waiting() -> Iterator[None]:
    gc.collect()
    memory.release()
    yield
    memory.release()


def address(array: Any) -> int:
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data_ptr())


@pytest.mark.parametrize("backend", BACKENDS)
def test_memory_nobody_holds_is_used_again(backend: str) -> None:
    like = BACKENDS[backend](np.zeros(P, np.float32))
    first = memory.vector_like(like)
    assert (first.shape, first.dtype) == (like.shape, like.dtype)
    place = address(first)
    del first
    assert address(memory.vector_like(like)) == place


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_view_keeps_its_memory(backend: str) -> None:
    like = BACKENDS[backend](np.zeros(P, np.float32))
    vector = memory.vector_like(like)
    vector[:] = 7.0
    view = vector[10:12].reshape(2, 1)[1]
    del vector
    gc.collect()
    other = memory.vector_like(like)
    other[:] = -1.0
    assert float(view[0]) == 7.0


def test_a_tensor_made_of_a_result_keeps_its_memory() -> None:
    torch = pytest.importorskip("torch")
    vector = memory.vector_like(np.zeros(P, np.float32))
    vector[:] = 7.0
    tensor = torch.from_numpy(vector)[5:6]
    del vector
    gc.collect()
    memory.vector_like(np.zeros(P, np.float32))[:] = -1.0
    assert float(tensor) == 7.0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rule", [FedAvg(), FedHAWAuto()], ids=["fedavg", "fedhaw-auto"])
def test_results_that_are_kept_stay_as_they_were(rule: Any, backend: str) -> None:
    to_backend = BACKENDS[backend]
    random = np.random.default_rng(0)
    w = random.standard_normal(P, dtype=np.float32)
    state, model = rule.init(), to_backend(w)
    kept, copies = [], []
    for _ in range(5):
        W = np.asarray(model) + 0.1 * random.standard_normal((3, P), dtype=np.float32)
        model, state = rule.aggregate(state, Round(model, to_backend(W), [1, 2, 3]))
        kept.append(model)
        copies.append(np.asarray(model).copy())
    for model, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(np.asarray(model), copy)


def test_what_waits_is_bounded_and_goes_when_models_change_size() -> None:
    vectors = [memory.vector_like(np.zeros(P, np.float32)) for _ in range(6)]
    vectors.clear()
    assert len(memory._free) == 2
    memory.vector_like(np.zeros(P + 1, np.float32))
    assert [waiting.size for waiting in memory._free] == [4 * (P + 1)]


def test_types_that_numpy_cannot_lend_get_memory_of_their_own() -> None:
    torch = pytest.importorskip("torch")
    for like in (torch.zeros(P, dtype=torch.bfloat16), torch.zeros(P, device="meta")):
        vector = memory.vector_like(like)
        assert (vector.dtype, vector.device, vector.shape) == (like.dtype, like.device, like.shape)
    assert not memory._free


def test_threads_never_share_a_vector() -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(200):
            vector = memory.vector_like(np.zeros(300_000, np.float32))
            vector[:] = number
            if not (vector[0] == vector[-1] == number):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_interpreter_ends_quietly_while_results_are_held() -> None:
    script = """
import numpy as np, sys
from fedhaw.rules import memory
sys.modules["__main__"].held = [memory.vector_like(np.zeros(1_000_000)) for _ in range(3)]
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=dict(os.environ)
    )
    assert (done.returncode, done.stderr) == (0, "")

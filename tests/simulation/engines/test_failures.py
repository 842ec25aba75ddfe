"""Clients that fail are lost, by name and reason; everyone else is trained all the same."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedhaw.simulation.engines import ClientReport, WorkersFailed

ENGINES = ["sequential", "processes"]


def failing(how: Callable[[nn.Module], object]) -> Callable[..., float]:
    """A client update that goes wrong for the clients with 40 and with 7 samples."""

    def update(module: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator) -> float:
        if len(x) in (40, 7):
            how(module)
        return 0.5

    return update


def go_wrong_each_in_its_own_way(
    module: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator
) -> float:
    match len(x):
        case 23:
            raise ValueError("no label\nand a second line")
        case 40:
            raise MemoryError
        case 7:
            torch.empty(2**50)
        case 64:
            next(module.parameters()).data.fill_(torch.nan)
        case 16:
            return float("inf")
    return 0.5


def check(reports: list[ClientReport], models: Tensor, start: Tensor, reason: str) -> None:
    for report, model in zip(reports, models, strict=True):
        if report.client in (1, 2):
            assert report.failure is not None
            assert report.failure.startswith(reason)
            assert report.loss != report.loss
        else:
            assert report.failure is None
            assert torch.equal(model, start)


@pytest.mark.parametrize("engine", ENGINES)
def test_failing_clients_are_lost_by_name_and_reason(make: Any, engine: str) -> None:
    trained = make(engine, update=go_wrong_each_in_its_own_way)
    models, reports = trained.train()
    assert [report.failure for report in reports] == [
        "exception: ValueError: no label",
        "out of memory",
        "out of memory",
        "not finite",
        "not finite",
        None,
    ]
    assert torch.equal(models[5], trained.start)
    assert [report.loss == report.loss for report in reports] == [False] * 5 + [True]


@pytest.mark.parametrize("engine", [*ENGINES, "stacked"])
def test_a_diverging_client_and_one_without_samples(make: Any, engine: str) -> None:
    x = torch.ones(10, 6)
    x[:4] = 1e30
    parts = [torch.arange(0, 4).numpy(), torch.arange(4, 10).numpy(), torch.arange(0).numpy()]
    trained = make(engine, x=x, y=torch.zeros(10, dtype=torch.int64), parts=parts)
    _, reports = trained.train(0, 1, 2)
    assert [report.failure for report in reports] == ["not finite", None, "no samples"]


@pytest.mark.parametrize("engine", [*ENGINES, "stacked"])
def test_a_client_with_an_impossible_label(make: Any, engine: str) -> None:
    y = torch.zeros(10, dtype=torch.int64)
    y[7] = 9
    parts = [torch.arange(0, 5).numpy(), torch.arange(5, 10).numpy()]
    trained = make(engine, x=torch.randn(10, 6), y=y, parts=parts)
    _, reports = trained.train(0, 1)
    assert reports[0].failure is None
    assert reports[1].failure is not None
    assert reports[1].failure.startswith("exception: ")


def test_a_worker_that_kills_itself_is_replaced(make: Any) -> None:
    trained = make(
        "processes", workers=2, update=failing(lambda module: os.kill(os.getpid(), signal.SIGKILL))
    )
    for _ in range(2):
        models, reports = trained.train()
        check(reports, models, trained.start, "worker killed (signal 9)")
    assert len(set(trained.engine.pids)) == 2


def test_a_worker_that_exits_is_replaced(make: Any) -> None:
    trained = make("processes", workers=1, update=failing(lambda module: os._exit(3)))
    models, reports = trained.train()
    check(reports, models, trained.start, "worker killed (exit code 3)")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_client_that_calls_sys_exit_is_lost(make: Any, engine: str) -> None:
    trained = make(engine, update=failing(lambda module: sys.exit(3)))
    models, reports = trained.train()
    check(reports, models, trained.start, "exception: SystemExit: 3")


def test_a_stack_that_is_given_up_is_mentioned(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    y = torch.zeros(10, dtype=torch.int64)
    y[7] = 9
    parts = [torch.arange(0, 5).numpy(), torch.arange(5, 10).numpy()]
    make("stacked", x=torch.randn(10, 6), y=y, parts=parts).train(0, 1)
    assert "cannot be trained as one stack" in caplog.text


def test_workers_killed_between_rounds_cost_nobody_a_round(make: Any) -> None:
    trained = make("processes", workers=2)
    models, _ = trained.train()
    for pid in trained.engine.pids:
        os.kill(pid, signal.SIGKILL)
        wait_for_the_end_of([pid])
    again, reports = trained.train()
    assert all(report.failure is None for report in reports)
    assert torch.equal(again, models)


def test_a_hanging_client_is_given_up_at_the_deadline(make: Any) -> None:
    trained = make(
        "processes", workers=2, deadline=0.5, update=failing(lambda module: time.sleep(3600))
    )
    models, reports = trained.train()
    check(reports, models, trained.start, "later than 0.5 s")


def test_a_late_client_is_lost_in_the_sequential_engine_too(make: Any) -> None:
    trained = make("sequential", deadline=0.2, update=failing(lambda module: time.sleep(0.3)))
    models, reports = trained.train()
    check(reports, models, trained.start, "later than 0.2 s")


def test_an_interrupted_round_leaves_no_stale_answers(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = make("processes", workers=2)
    expected, _ = trained.train()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(type(trained.engine), "_with_news", interrupt)
        with pytest.raises(KeyboardInterrupt):
            trained.train(round_index=9)
    models, _ = trained.train()
    assert torch.equal(models, expected)


class Arrives(nn.Module):
    """What `NeverArrives` is on this side."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        return out


class NeverArrives(Arrives):
    """Can be sent to a worker, but not received there."""

    def __deepcopy__(self, memo: object) -> Arrives:
        return Arrives()

    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit(1)",))


def test_workers_that_cannot_start_are_an_error_not_a_loop(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedhaw.simulation.engines.processes.FAILED_STARTS", 2)
    trained = make("processes", workers=1, module=NeverArrives())
    with pytest.raises(WorkersFailed, match="died while starting"):
        trained.train()


def open_descriptors() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
@pytest.mark.parametrize(
    ("what", "calls"), [("os.ftruncate", 0), ("os.ftruncate", 4), ("subprocess.Popen", 1)]
)
def test_an_engine_that_cannot_start_says_so_and_leaves_nothing(
    make: Any, monkeypatch: pytest.MonkeyPatch, what: str, calls: int
) -> None:
    before, left = open_descriptors(), calls
    module, _, name = what.rpartition(".")
    real = getattr(sys.modules[module], name)
    made: list[Any] = []

    def failing_later(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(28, "No space left on device")
        made.append(real(*arguments, **options))
        return made[-1]

    with monkeypatch.context() as patched:
        patched.setattr(what, failing_later)
        with pytest.raises(WorkersFailed, match="No space left on device"):
            make("processes", workers=2)
    if what == "subprocess.Popen":
        assert made[0].poll() is not None
    made.clear()
    assert open_descriptors() == before


def is_alive(pid: int) -> bool:
    """Whether any thread of a process runs; a zombie that nobody has collected does not.

    On a busy machine the first thread may have ended while others still hold the process's files.
    """
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if thread.read_text().rpartition(")")[2].split()[0] != "Z":
                return True
    return False


def wait_for_the_end_of(pids: list[int]) -> None:
    patience = time.monotonic() + 30
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < patience
        time.sleep(0.01)


PARENT = """
    import numpy as np, sys, time, torch
    from fedhaw.data import from_arrays
    from fedhaw.models import mlp
    from fedhaw.settings import fill
    from fedhaw.simulation import Federation
    from fedhaw.simulation.engines import TrainingRound, create

    def update(module, x, y, generator):
        print("training", flush=True)
        time.sleep(3600)

    x, y = np.zeros((4, 3), "float32"), np.arange(4) % 2
    settings = {"data": from_arrays(x, y, x, y), "model": mlp((3, 2)), "client_update": update,
                "split": [[0, 1], [2, 3]], "engine": "processes", "workers": 2}
    # No `if __name__ == "__main__"`: a script's first lines must not run again in its workers.
    engine = create(Federation.prepare(fill(settings, objects=True)))
    print(*engine.pids, flush=True)
    engine.train(TrainingRound(0, torch.zeros(8), [0, 1], torch.zeros(2, 8).unbind()))
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
def test_workers_die_with_a_parent_that_is_killed_in_the_midst_of_a_round(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(textwrap.dedent(PARENT))
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert parent.stdout.readline() == "training\n"
        assert all(is_alive(pid) for pid in pids)
        parent.kill()
        wait_for_the_end_of(pids)


def test_closing_ends_the_workers_and_can_be_done_twice(make: Any) -> None:
    trained = make("processes", workers=2)
    pids = trained.engine.pids
    trained.engine.close()
    trained.engine.close()
    assert not any(is_alive(pid) for pid in pids)

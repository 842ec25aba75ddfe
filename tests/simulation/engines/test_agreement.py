"""All engines give the same answer: bitwise across workers, to float32 accuracy when stacked."""

import math
import os
from typing import Any

import pytest
import torch
from tests.simulation.engines.conftest import SIZES
from torch import Tensor, nn

from fedhaw.clients import ClientUpdate, named


def convolutional() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4)
    )


def own(module: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
    noise = torch.randn(x.shape, generator=generator)
    loss = nn.functional.cross_entropy(module(x + noise), y)
    gradients = torch.autograd.grad(loss, list(module.parameters()))
    with torch.no_grad():
        for parameter, gradient in zip(module.parameters(), gradients, strict=True):
            parameter.sub_(gradient, alpha=0.1)
    return loss.detach()


def with_lone_samples() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4))


FEDERATIONS: dict[str, dict[str, Any]] = {
    "perceptron": {},
    "fedprox+adam": {"update": named("fedprox+adam", eta=0.01, mu=0.1, epochs=2, batch=8)},
    "sgd-wd": {"update": named("sgd-wd", eta=0.1, weight_decay=0.1, batch=8)},
    "module, batch statistics": {"module": convolutional, "shape": (1, 4, 4)},
    "module, averaged buffers": {"module": convolutional, "shape": (1, 4, 4), "buffers": "average"},
}


def federation(name: str) -> dict[str, Any]:
    settings = dict(FEDERATIONS[name])
    if "module" in settings:
        settings["module"] = settings["module"]()
    return settings


@pytest.mark.parametrize("name", FEDERATIONS)
def test_processes_equal_sequential_bit_for_bit(make: Any, name: str) -> None:
    reference, reports = make("sequential", **federation(name)).train()
    assert all(report.failure is None for report in reports)
    for workers in (1, 2, 3) if name == "perceptron" else (2,):
        models, others = make("processes", workers=workers, **federation(name)).train()
        assert torch.equal(models, reference)
        assert [r.loss for r in others] == [r.loss for r in reports]


@pytest.mark.parametrize("name", FEDERATIONS)
def test_stacked_is_close_and_repeatable(make: Any, name: str) -> None:
    reference, reports = make("sequential", **federation(name)).train()
    engine = make("stacked", **federation(name))
    models, others = engine.train()
    torch.testing.assert_close(models, reference, rtol=1e-4, atol=2e-6)
    for one, other in zip(reports, others, strict=True):
        assert other.loss == pytest.approx(one.loss, rel=1e-5)
    assert torch.equal(engine.train()[0], models)
    assert torch.equal(make("stacked", **federation(name)).train()[0], models)


@pytest.mark.parametrize("buffers", ["batch", "average"])
def test_a_lone_last_sample_joins_the_batch_before_it(make: Any, buffers: str) -> None:
    # Batches of 13 leave one sample of 40; batches of 21 one of 64. One has no variance.
    for batch, client in ((13, 1), (21, 3)):
        settings: dict[str, Any] = {
            "module": with_lone_samples(),
            "buffers": buffers,
            "update": named("sgd", eta=0.05, epochs=2, batch=batch),
        }
        reference, reports = make("sequential", **settings).train()
        # Nobody can normalise the only sample of client 5.
        assert [r.client for r in reports if r.failure is not None] == [5]
        assert torch.equal(make("processes", workers=2, **settings).train()[0][:5], reference[:5])
        stacked, _ = make("stacked", **settings).train(0, 1, 2, 3, 4)
        torch.testing.assert_close(stacked, reference[:5], rtol=1e-3, atol=1e-5)
        assert reports[client].loss == reports[client].loss


def test_what_a_function_leaves_in_its_module_reaches_nobody_else(make: Any) -> None:
    def untidy(module: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator) -> float:
        visits = int(getattr(module, "visits", 0)) + 1
        module.visits = visits  # type: ignore[assignment]
        if len(x) in (40, 7):
            module[1].requires_grad_(False)  # type: ignore[index]
            module.register_forward_hook(lambda *parts: parts[2] * 2)
        trainable = [p for p in module.parameters() if p.requires_grad]
        loss = nn.functional.cross_entropy(module(x), y) * visits
        with torch.no_grad():
            for p, g in zip(trainable, torch.autograd.grad(loss, trainable), strict=True):
                p.sub_(g, alpha=0.1)
        return float(loss.detach())

    reference, reports = make("sequential", update=untidy).train()
    for workers in (1, 3):
        models, others = make("processes", workers=workers, update=untidy).train()
        assert torch.equal(models, reference)
        assert [r.loss for r in others] == [r.loss for r in reports]
    alone, _ = make("sequential", update=untidy).train(3)
    assert torch.equal(alone[0], reference[3])


def test_averaged_buffers_move_and_batch_statistics_do_not_travel(make: Any) -> None:
    averaged = make("sequential", **federation("module, averaged buffers"))
    models, _ = averaged.train()
    assert not torch.equal(models[0, -6:], averaged.start[-6:])
    by_batch = make("sequential", **federation("module, batch statistics"))
    assert len(by_batch.start) == len(averaged.start) - 6
    # The parameters are the same either way: training normalises by the batch.
    assert torch.equal(by_batch.train()[0], models[:, :-6])


@pytest.mark.parametrize("engine", ["sequential", "processes", "stacked"])
def test_neither_cohort_nor_order_matters_to_a_client(make: Any, engine: str) -> None:
    trained = make(engine)
    everyone, _ = trained.train()
    some, _ = trained.train(4, 1, 5)
    torch.testing.assert_close(some, everyone[[4, 1, 5]], rtol=1e-5, atol=1e-6)
    if engine != "stacked":
        assert torch.equal(some, everyone[[4, 1, 5]])
    later, _ = trained.train(round_index=1)
    assert not torch.equal(later, everyone)


def test_a_users_own_function_in_every_process(make: Any) -> None:
    update: ClientUpdate = own
    reference, _ = make("sequential", update=update).train()
    models, reports = make("processes", workers=2, update=update).train()
    assert torch.equal(models, reference)
    assert all(math.isfinite(report.loss) for report in reports)


def test_classes_and_functions_of_a_script_reach_the_workers(make: Any) -> None:
    class Local(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 4)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.layer(x).tanh() * 3
            return out

    module = Local()
    reference, _ = make("sequential", module=module).train()
    models, _ = make("processes", workers=2, module=module).train()
    assert torch.equal(models, reference)


def test_large_cohorts_are_trained_in_several_stacks(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = make("stacked").train()
    monkeypatch.setattr("fedhaw.simulation.engines.stacked.PERCEPTRON_NUMBERS", 59 * 4)
    models, _ = make("stacked").train()
    torch.testing.assert_close(models, whole, rtol=1e-5, atol=1e-6)


def test_stacks_give_the_same_bits_on_any_number_of_cores(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedhaw.simulation.engines.stacked.PERCEPTRON_NUMBERS", 59 * 2)
    found = []
    for cores in (1, 2, 3):
        monkeypatch.setattr(
            "fedhaw.simulation.engines.stacked.available_cores", lambda cores=cores: cores
        )
        found.append(make("stacked").train()[0].clone())
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.parametrize("engine", ["sequential", "processes", "stacked"])
def test_the_callers_model_and_randomness_are_left_alone(make: Any, engine: str) -> None:
    trained = make(engine)
    before, state, threads = trained.start.clone(), torch.get_rng_state(), torch.get_num_threads()
    trained.train()
    assert torch.equal(trained.start, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system pins no process")
@pytest.mark.parametrize("crowded", [False, True])
def test_each_worker_has_a_core_of_its_own_where_there_is_one_for_each(
    make: Any, crowded: bool
) -> None:
    cores = os.sched_getaffinity(0)
    trained = make("processes", workers=min(len(cores), len(SIZES)) + crowded)

    def kept_to() -> list[set[int]]:
        return [os.sched_getaffinity(pid) for pid in trained.engine.pids]

    for worker in trained.engine._workers:
        assert worker.connection.poll(60), "a worker's first word says that it is ready"
    if len(kept_to()) == len(cores):
        assert sorted(map(sorted, kept_to())) == [[core] for core in sorted(cores)]
    else:
        assert all(own == cores for own in kept_to())

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from tests.simulation.every_rule import RULES, same, without_times
from torch import Tensor, nn

import fedhaw
from fedhaw import BurstyUplink, FedAvg, FedHAW, FedhawError, LetterUplink, Round
from fedhaw.clients import LocalUpdate
from fedhaw.data import Dataset, from_arrays
from fedhaw.history import History, RoundRecord
from fedhaw.simulation import Federation
from fedhaw.simulation.engines import ClientReport, TrainingRound
from fedhaw.simulation.evaluation import ModelEvaluation
from fedhaw.simulation.loop import Loop, Progress
from fedhaw.simulation.run import simulate
from fedhaw.simulation.stand_ins import LastModels
from fedhaw.uplink import RecordedUplink

Simulate = Callable[..., History]


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_every_rule_runs_repeats_and_records(run: Simulate, rule: Any) -> None:
    history = run(rule, uplink=0.6, also_scales=["authors"])
    assert same(history, run(rule, uplink=0.6, also_scales=["authors"]))
    assert history.finished
    assert history.rounds.tolist() == [0, 1, 2, 3, 4]
    P = history.run.parameters
    assert P == 6 * 5 + 5 + 5 * 3 + 3
    for record in history.records:
        lost, weights = record.lost, record.weights
        if len(lost) < 4:
            assert set(weights) == {"0", "1", "2", "3"}
            assert sum(weights.values()) == pytest.approx(1)
        assert set(lost.values()) <= {"uplink"}
        assert record.bytes == {"up": (4 - len(lost)) * P * 4, "down": 4 * P * 4}
        assert set(record.client_loss) == {"0", "1", "2", "3"} - set(lost)
        assert set(record.seconds) == {"train", "aggregate", "evaluate"}
        assert set(record.evaluation) == {"accuracy", "loss", "accuracy/authors", "loss/authors"}
        # Features have one scale.
        assert record.evaluation["accuracy/authors"] == record.evaluation["accuracy"]
    assert history.weights.shape == (5, 4)
    assert not np.isnan(history.accuracy).any()


def test_learning_takes_place(run: Simulate) -> None:
    assert run(FedAvg(), rounds=30).accuracy[-1] > 0.7


def test_rules_are_compared_on_the_same_draws(run: Simulate) -> None:
    histories = [run(rule, uplink=0.7, cohort=3, rounds=8) for rule in RULES.values()]
    for field in ("lost", "bytes"):
        assert len({str([getattr(r, field) for r in h.records]) for h in histories}) == 1
    first = [h.records[0].client_loss for h in histories]
    assert all(losses == first[0] for losses in first)
    assert sum(histories[0].lost) > 0


def test_losses_do_not_depend_on_the_cohort(run: Simulate) -> None:
    everyone = run(FedAvg(), uplink=0.9, rounds=20)
    some = run(FedAvg(), uplink=0.9, rounds=20, cohort=2)
    for all_asked, few_asked in zip(everyone.records, some.records, strict=True):
        asked = set(few_asked.client_loss) | set(few_asked.lost)
        assert len(asked) == 2
        assert set(few_asked.lost) == set(all_asked.lost) & asked
    assert len({(*r.client_loss, *r.lost) for r in some.records}) > 3


class NeverLate(LetterUplink):
    """An uplink over which what is lost might come later, so that all are trained; none does."""

    def delays(self, seed: int, round_index: int, clients: Sequence[int]) -> Any:
        return np.zeros(len(clients), dtype=np.int64)


@pytest.mark.parametrize("engine", ["sequential", "processes"])
def test_clients_whom_nobody_will_hear_are_not_trained_and_not_missed(
    run: Simulate, engine: str
) -> None:
    rule = FedHAW(0.1, 1e-2, 1e-1)
    few = run(rule, uplink=LetterUplink(0.9), rounds=8, engine=engine)
    everybody = run(rule, uplink=NeverLate(0.9), rounds=8, engine=engine)
    assert few.lost.tolist() == everybody.lost.tolist()
    assert few.lost.sum() > 0
    assert {len(record.client_loss) for record in everybody.records} == {4}
    assert all(not record.lost.keys() & record.client_loss.keys() for record in few.records)
    assert few.model is not None
    assert everybody.model is not None
    assert few.model.tobytes() == everybody.model.tobytes()


@pytest.mark.parametrize("workers", [1, 2])
def test_worker_processes_give_the_same_run(run: Simulate, workers: int) -> None:
    settings: dict[str, Any] = {"uplink": 0.5, "rounds": 3}
    parallel = run(FedHAW(0.1, 1e-2, 1e-1), engine="processes", workers=workers, **settings)
    assert same(parallel, run(FedHAW(0.1, 1e-2, 1e-1), **settings))


def test_the_initial_model_depends_on_the_seed_alone(run: Simulate) -> None:
    start: dict[int, set[str]] = {}
    for seed in (1, 2):
        for noise in (10, 20):
            torch.manual_seed(noise)
            config = run(FedAvg(), seed=seed, rounds=1).run.config
            start.setdefault(seed, set()).add(str(config["initial_model"]))
    assert len(start[1]) == len(start[2]) == 1
    assert start[1] != start[2]


def test_the_callers_random_numbers_are_left_alone(run: Simulate) -> None:
    torch.manual_seed(4)
    expected = torch.rand(3)
    torch.manual_seed(4)
    run(FedAvg(), rounds=2)
    assert torch.equal(torch.rand(3), expected)


class Sum:
    """A rule that keeps nothing, and remembers what it was given."""

    def __init__(self) -> None:
        self.rounds: list[tuple[Tensor, Tensor, np.ndarray, tuple[Any, ...]]] = []

    def init(self) -> Any:
        return FedAvg().init()

    def aggregate(self, state: Any, current: Round) -> tuple[Any, Any]:
        taken = (current.global_model.clone(), current.client_models.clone())
        self.rounds.append((*taken, current.received.copy(), current.clients))
        return FedAvg().aggregate(state, current)


class Scripted:
    """Loses exactly what it is told to."""

    def __init__(self, losses: dict[int, set[int]]) -> None:
        self.losses = losses

    def lost(self, seed: int, round_index: int, clients: Sequence[int]) -> np.ndarray:
        return np.array([client in self.losses.get(round_index, ()) for client in clients])


LOSSES = Scripted({0: {1}, 1: {0, 1, 3}, 2: {0, 1, 2, 3}, 3: {2}})


def test_the_global_model_stands_in_by_default(run: Simulate) -> None:
    rule = Sum()
    history = run(rule, uplink=LOSSES, rounds=4)
    assert len(rule.rounds) == 3  # in round 2 nothing arrives, and nobody is asked
    for (w, W, arrived, names), lost in zip(rule.rounds, ({1}, {0, 1, 3}, {2}), strict=True):
        assert names == (0, 1, 2, 3)
        for k in range(4):
            assert arrived[k] == (k not in lost)
            assert torch.equal(W[k], w) == (k in lost)
    assert "nothing arrived" in str(history.records[2].note)
    assert history.records[2].weights == {}
    assert history.records[2].bytes["up"] == 0
    assert history.accuracy[2] == history.accuracy[1]


def test_the_last_received_model_stands_in(run: Simulate) -> None:
    rule = Sum()
    run(rule, uplink=LOSSES, rounds=4, stand_in="last")
    (w0, W0, arrived0, _), (w1, W1, arrived1, _), (_, W3, arrived3, _) = rule.rounds
    assert arrived0.tolist() == [True, False, True, True]  # client 1 was never heard of
    assert torch.equal(W0[1], w0)
    assert arrived1.tolist() == [True, False, True, True]
    assert torch.equal(W1[0], W0[0])
    assert torch.equal(W1[1], w1)
    assert torch.equal(W1[3], W0[3])
    assert arrived3.all()
    assert torch.equal(W3[2], W1[2])


def test_memory_for_last_models_grows_with_those_heard_from() -> None:
    last = LastModels(3, torch.device("cpu"))
    w, W = torch.zeros(3), torch.arange(6.0).view(2, 3)
    last.keep([10**12, 7], W, lost={7})
    models = torch.full((2, 3), torch.nan)
    received = last.fill([7, 10**12], models, np.zeros(2, dtype=np.bool_), w)
    assert received.tolist() == [False, True]
    assert torch.equal(models, torch.stack([w, W[0]]))
    again = LastModels(3, torch.device("cpu"))
    again.unpack(last.pack())
    assert again.pack()["clients"].tolist() == [10**12]
    np.testing.assert_array_equal(again.pack()["models"], W[:1].numpy())


def test_nothing_stands_in_when_asked(run: Simulate) -> None:
    rule = Sum()
    history = run(rule, uplink=LOSSES, rounds=4, stand_in="none")
    whole = Sum()
    run(whole, uplink=LOSSES, rounds=1)
    assert [names for *_, names in rule.rounds] == [(0, 2, 3), (2,), (0, 1, 3)]
    assert torch.equal(rule.rounds[0][1], whole.rounds[0][1][[0, 2, 3]])
    assert list(history.records[1].weights) == ["2"]


@pytest.mark.parametrize("stand_in", ["global", "last", "none"])
def test_fedhaw_still_sees_the_round_before_after_a_silent_one(
    run: Simulate, stand_in: str
) -> None:
    # The rule keeps its matrix over the silent rounds, so the engine must not write into it.
    silent = Scripted({1: set(range(4)), 2: set(range(4)), 4: {0}})
    kept: list[Tensor] = []

    class Watching:
        rule = FedHAW(0.1, 1e-2, 1e-1)

        def init(self) -> Any:
            return self.rule.init()

        def aggregate(self, state: Any, current: Round) -> tuple[Any, Any]:
            if kept:
                assert torch.equal(state.previous, kept[-1])
            kept.append(current.client_models.clone())
            return self.rule.aggregate(state, current)

    run(Watching(), uplink=silent, rounds=8, stand_in=stand_in)
    assert len(kept) == 6


def test_two_buffers_are_enough(run: Simulate) -> None:
    places = set()

    class Watching:
        rule = FedHAW(0.1, 1e-2, 1e-1)

        def init(self) -> Any:
            return self.rule.init()

        def aggregate(self, state: Any, current: Round) -> tuple[Any, Any]:
            places.add(current.client_models.data_ptr())
            return self.rule.aggregate(state, current)

    run(Watching(), uplink=0.5, rounds=9)
    assert len(places) == 2


def test_a_rule_may_return_one_of_the_rows(run: Simulate) -> None:
    class First:
        def init(self) -> Any:
            return FedAvg().init()

        def aggregate(self, state: Any, current: Round) -> tuple[Any, Any]:
            return current.client_models[0], FedAvg().aggregate(state, current)[1]

    class CopyOfFirst(First):
        def aggregate(self, state: Any, current: Round) -> tuple[Any, Any]:
            model, state = super().aggregate(state, current)
            return model.clone(), state

    assert without_times(run(First())) == without_times(run(CopyOfFirst()))


def failing(module: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator) -> float:
    """Client 2 holds the fewest samples: it raises in even rounds and diverges in odd ones."""
    if len(x) == 10:
        if float(torch.rand(1, generator=generator)) < 0.5:
            raise ValueError("no power")
        with torch.no_grad():
            next(module.parameters()).fill_(float("nan"))
        return 0.0
    with torch.no_grad():
        next(module.parameters()).add_(0.01)
    return 1.0


def test_a_failing_client_is_lost_and_the_run_goes_on(
    run: Simulate, caplog: pytest.LogCaptureFixture
) -> None:
    parts = [np.arange(30), np.arange(30, 60), np.arange(60, 70), np.arange(70, 120)]
    history = run(
        FedHAW(0.1, 1e-3, 1e-3), client_update=failing, split=parts, clients=None, rounds=8
    )
    reasons = [record.lost.get("2") for record in history.records]
    assert set(reasons) == {"exception: ValueError: no power", "not finite"}
    assert all(set(record.lost) == {"2"} for record in history.records)
    assert all("2" not in record.client_loss for record in history.records)
    assert history.model is not None
    assert np.isfinite(history.model).all()
    assert "client 2 (exception: ValueError: no power)" in caplog.text


def test_a_mistake_is_told_in_the_first_round_that_anybody_is_heard_in(run: Simulate) -> None:
    def broken(module: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator) -> float:
        raise ValueError("no power")

    at_first = RecordedUplink(frozenset((0, client) for client in range(4)))
    with pytest.raises(FedhawError, match=r"Every client failed in the first round .*no power"):
        run(FedAvg(), client_update=broken, uplink=at_first)


def forgetful(module: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator) -> None:
    pass


def misspelt(module: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator) -> float:
    return module.los(x)  # type: ignore[no-any-return, operator]


def vector(module: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
    return torch.zeros(3)


@pytest.mark.parametrize(
    ("update", "says"),
    [
        (forgetful, "the client function returned None, not its mean training loss"),
        (vector, "the client function returned a Tensor, not its mean training loss"),
        (misspelt, "Every client failed in the first round (exception: AttributeError: "),
    ],
)
@pytest.mark.parametrize("engine", ["sequential", "processes"])
def test_a_mistake_that_every_client_makes_stops_the_run(
    run: Simulate, engine: str, update: Any, says: str
) -> None:
    with pytest.raises(FedhawError) as caught:
        run(
            FedAvg(),
            client_update=update,
            engine=engine,
            workers=1 if engine == "processes" else None,
        )
    assert says in str(caught.value)


def test_a_run_in_which_everybody_fails_for_a_reason_of_their_own_ends_where_it_began(
    run: Simulate,
) -> None:
    def broken(module: nn.Module, x: Tensor, *_: object) -> float:
        raise RuntimeError("no") if len(x) < 35 else ValueError("neither")

    started: list[Tensor] = []

    def rule(federation: Federation) -> FedAvg:
        started.append(federation.initial_model.clone())
        return FedAvg()

    parts = [np.arange(30), np.arange(30, 60), np.arange(60, 70), np.arange(70, 120)]
    history = run(rule, client_update=broken, split=parts, rounds=2)
    assert history.lost.tolist() == [4, 4]
    assert history.model is not None
    assert history.model.tobytes() == started[0].numpy().tobytes()


def test_a_model_the_rule_refuses_is_a_lost_one(tiny: Dataset) -> None:
    # Engines look for NaN themselves; this is the second line of defence.
    made: list[Federation] = []

    def rule(federation: Federation) -> FedAvg:
        made.append(federation)
        return FedAvg()

    simulate(rule, tiny, model="logistic", clients=4, split="iid", rounds=1, engine="sequential")
    federation = made[0]

    class Careless:
        arithmetic: ClassVar[str] = "one by one"

        def train(self, given: TrainingRound) -> list[ClientReport]:
            for row in given.out:
                row.copy_(given.global_model + 1)
            given.out[1].fill_(float("nan"))
            return [ClientReport(client, 1.0, 0.0) for client in given.cohort]

        def close(self) -> None: ...

    loop = Loop(federation, FedAvg(), Careless(), ModelEvaluation(federation))
    progress = Progress(0, federation.initial_model, FedAvg().init())
    records: list[RoundRecord] = []
    federation.settings["rounds"] = 2
    loop.play(progress, lambda record, _: records.append(record))
    assert [record.lost for record in records] == [{"1": "not finite"}] * 2
    assert torch.isfinite(progress.model).all()


def test_the_proxy_part_counts_in_nobodys_accuracy(tiny: Dataset) -> None:
    seen: list[Federation] = []

    def rule(federation: Federation) -> FedAvg:
        seen.append(federation)
        return FedAvg()

    simulate(rule, tiny, model="logistic", split="iid", rounds=1, engine="sequential")
    federation = seen[0]
    tested, proxy = federation.x_test["matched"], federation.x_proxy
    assert len(tested) + len(proxy) == 60
    assert len(proxy) == 12
    both = {row.tobytes() for row in torch.cat([tested, proxy]).numpy()}
    assert len(both) == 60


def test_evaluation_now_and_then_but_always_at_the_end(run: Simulate) -> None:
    history = run(FedAvg(), rounds=8, evaluate_every=3)
    assert np.flatnonzero(~np.isnan(history.accuracy)).tolist() == [2, 5, 7]
    assert "accuracy" in repr(history)


def test_a_users_module_starts_from_its_own_values(run: Simulate) -> None:
    module = nn.Linear(6, 3)
    before = [p.clone() for p in module.parameters()]
    history = run(FedAvg(), model=module, rounds=2)
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    assert history.run.parameters == 21
    by_function = run(FedAvg(), model=lambda: nn.Linear(6, 3), rounds=2, seed=3)
    assert same(by_function, run(FedAvg(), model=lambda: nn.Linear(6, 3), rounds=2, seed=3))


def test_an_update_may_bring_its_own_numbers(run: Simulate) -> None:
    own = run(FedAvg(), client_update=LocalUpdate(eta=0.1, batch=8))
    assert same(own, run(FedAvg()))


def test_records_arrive_as_they_happen(run: Simulate) -> None:
    heard: list[RoundRecord] = []
    history = run(FedAvg(), on_round=heard.append)
    assert heard == list(history.records)


def test_a_clash_of_learning_rates_is_mentioned(
    run: Simulate, caplog: pytest.LogCaptureFixture
) -> None:
    run(FedHAW(0.5, 1e-3, 1e-3), rounds=1)
    assert "takes the clients' learning rate for 0.5, but they use 0.1" in caplog.text


def test_many_clients_cost_little_where_few_take_part() -> None:
    random = np.random.default_rng(0)
    data = from_arrays(
        random.normal(size=(10_000, 4)).astype(np.float32), np.arange(10_000) % 2,
        random.normal(size=(50, 4)).astype(np.float32), np.arange(50) % 2,
    )  # fmt: skip
    shapes = set()

    class Watching:
        rule = FedHAW(0.1, 1e-3, 1e-3)

        def init(self) -> Any:
            return self.rule.init()

        def aggregate(self, state: Any, current: Round) -> tuple[Any, Any]:
            shapes.add(tuple(current.client_models.shape))
            model, state = self.rule.aggregate(state, current)
            assert state.previous.shape == (7, 10)
            return model, state

    history = simulate(
        Watching(), data, model="logistic", clients=10_000, cohort=7, split="iid", eta=0.1,
        uplink=BurstyUplink(0.1, 0.3), rounds=4, engine="sequential",
    )  # fmt: skip
    assert shapes == {(7, 10)}
    assert all(len(r.client_loss) + len(r.lost) == 7 for r in history.records)


def test_the_package_offers_it() -> None:
    assert fedhaw.simulate is simulate
    assert fedhaw.History is History
    assert "simulate" in dir(fedhaw)

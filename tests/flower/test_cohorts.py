"""The same recipe, the same cohorts and the same emulated losses as in the simulator."""

from types import SimpleNamespace

from flwr.app import ArrayRecord

import fedhaw
from fedhaw.flower import RuleStrategy
from fedhaw.simulation.participation import cohort_of
from fedhaw.uplink import LetterUplink


def test_cohorts_and_losses_are_the_simulators(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    clients = {900 - k: flower.moving(k, 0.1) for k in range(12)}
    uplink = LetterUplink(0.9)
    strategy = RuleStrategy(
        fedhaw.FedAvg(),
        fraction_train=5 / 12,
        min_train_nodes=5,
        fraction_evaluate=0.0,
        seed=4,
        uplink=uplink,
        roll_call=True,
    )
    strategy.start(flower.Grid(clients), arrays, num_rounds=6)
    for t, report in enumerate(strategy.reports):
        cohort = cohort_of(4, t, 12, 5)
        lost = uplink.lost(4, t, cohort)
        assert strategy.cohorts[t] == tuple(map(str, cohort))
        assert report.lost == {
            str(k): "uplink" for k, gone in zip(cohort, lost, strict=True) if gone
        }
    assert any(report.lost for report in strategy.reports)


def test_evaluation_may_ask_others_than_training(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    grid = flower.Grid({k: flower.moving(k, 0.1) for k in range(10)})
    strategy = RuleStrategy(fedhaw.FedAvg(), fraction_train=0.5, fraction_evaluate=0.5, seed=1)
    strategy.start(grid, arrays, num_rounds=1)
    asked = {
        kind: {m.metadata.dst_node_id for m in grid.sent if m.metadata.message_type == kind}
        for kind in ("train", "evaluate")
    }
    assert len(asked["train"]) == len(asked["evaluate"]) == 5
    assert asked["train"] != asked["evaluate"]

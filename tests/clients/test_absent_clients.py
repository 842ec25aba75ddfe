"""Rules beside client algorithms that speak for absent clients."""

import fedhaw
from fedhaw.clients import SCAFFOLD, FedDyn, LocalUpdate
from fedhaw.rules.base import suited


def test_nobodys_update_is_replayed_beside_control_variates() -> None:
    steps = LocalUpdate(eta=0.1)
    assert suited(fedhaw.FedHAWAuto(), SCAFFOLD(steps)) == fedhaw.FedHAWAuto(without="replay")
    for rule in (fedhaw.FedAvg(), fedhaw.MIFA(), fedhaw.FedHAWAuto(without="gamma")):
        assert suited(rule, SCAFFOLD(steps)) is rule
    around = fedhaw.Clipped(fedhaw.FedHAWAuto(), limit=2.0)
    inner = fedhaw.FedHAWAuto(without="replay")
    assert suited(around, SCAFFOLD(steps)) == fedhaw.Clipped(inner, limit=2.0)
    rule = fedhaw.FedHAWAuto()
    for other in (steps, FedDyn(steps, alpha=0.1), lambda module, x, y, generator: 0.0, None):
        assert suited(rule, other) is rule


def test_a_run_says_that_nobody_is_replayed() -> None:
    history = fedhaw.simulate(fedhaw.FedHAWAuto(), rounds=1, client_update="scaffold")
    rule = history.run.config["rule"]
    assert isinstance(rule, dict)
    assert rule["without"] == "replay"

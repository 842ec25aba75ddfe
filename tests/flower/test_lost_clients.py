"""Whatever happens to a client: it is lost for the round, by name and with a reason."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

import fedhaw
from fedhaw.flower import RuleStrategy
from fedhaw.rules import Round


def round_of(message: Message) -> int:
    return int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]


def flat(record: ArrayRecord) -> NDArray[Any]:
    floats = [array.numpy().reshape(-1) for array in record.values()]
    return np.concatenate([values for values in floats if values.dtype.kind == "f"])


def changed(message: Message, name: str, array: Array) -> ArrayRecord:
    record = ArrayRecord()
    for key, value in message.content["arrays"].items():
        record[key] = array if key == name else value  # type: ignore[assignment]
    return record


def nan(message: Message, flower: SimpleNamespace) -> Any:
    values = np.full((3, 4), np.nan, np.float32)
    return flower.reply(message, changed(message, "a.weight", Array(values)), "bad")


def wrong_shape(message: Message, flower: SimpleNamespace) -> Any:
    values = np.zeros((4, 3), np.float32)
    return flower.reply(message, changed(message, "a.weight", Array(values)), "bad")


def wrong_dtype(message: Message, flower: SimpleNamespace) -> Any:
    values = np.zeros((3, 4), np.int64)
    return flower.reply(message, changed(message, "a.weight", Array(values)), "bad")


def float_counter(message: Message, flower: SimpleNamespace) -> Any:
    return flower.reply(message, changed(message, "b.count", Array(np.array(1.0))), "bad")


def missing_array(message: Message, flower: SimpleNamespace) -> Any:
    record = changed(message, "", Array(np.zeros(1)))
    del record["a.bias"]
    return flower.reply(message, record, "bad")


def further_array(message: Message, flower: SimpleNamespace) -> Any:
    record = changed(message, "", Array(np.zeros(1)))
    record["c"] = Array(np.zeros(1))
    return flower.reply(message, record, "bad")


def garbage(message: Message, flower: SimpleNamespace) -> Any:
    array = Array(dtype="float32", shape=(3, 4), stype="numpy.ndarray", data=b"\x93NUMPY\x01\x00?")
    return flower.reply(message, changed(message, "a.weight", array), "bad")


def truncated(message: Message, flower: SimpleNamespace) -> Any:
    whole = Array(np.zeros((3, 4), np.float32))
    array = Array(dtype=whole.dtype, shape=whole.shape, stype=whole.stype, data=whole.data[:-4])
    return flower.reply(message, changed(message, "a.weight", array), "bad")


def pickled(message: Message, flower: SimpleNamespace) -> Any:
    import io

    buffer = io.BytesIO()
    np.save(buffer, np.array([[{}] * 4] * 3, dtype=object), allow_pickle=True)
    array = Array(dtype="float32", shape=(3, 4), stype="numpy.ndarray", data=buffer.getvalue())
    return flower.reply(message, changed(message, "a.weight", array), "bad")


def no_examples(message: Message, flower: SimpleNamespace) -> Any:
    content = RecordDict({"arrays": message.content["arrays"]})
    content["metrics"] = MetricRecord({"loss": 1.0})
    content["who"] = ConfigRecord({"client-id": "bad"})
    return Message(content, reply_to=message)


def negative_examples(message: Message, flower: SimpleNamespace) -> Any:
    return flower.reply(message, message.content["arrays"], "bad", examples=-5)


def infinite_examples(message: Message, flower: SimpleNamespace) -> Any:
    return flower.reply(message, message.content["arrays"], "bad", examples=float("inf"))


def listed_examples(message: Message, flower: SimpleNamespace) -> Any:
    return flower.reply(message, message.content["arrays"], "bad", examples=[1, 2])


def no_metrics(message: Message, flower: SimpleNamespace) -> Any:
    content = RecordDict({"arrays": message.content["arrays"]})
    content["who"] = ConfigRecord({"client-id": "bad"})
    return Message(content, reply_to=message)


def no_arrays(message: Message, flower: SimpleNamespace) -> Any:
    content = RecordDict({"metrics": MetricRecord({"num-examples": 10})})
    content["who"] = ConfigRecord({"client-id": "bad"})
    return Message(content, reply_to=message)


def two_models(message: Message, flower: SimpleNamespace) -> Any:
    reply = flower.reply(message, message.content["arrays"], "bad")
    reply.content["more"] = message.content["arrays"]
    return reply


def exception(message: Message, flower: SimpleNamespace) -> Any:
    return flower.failure(message, 2, "Traceback ...\nValueError: disk full")


def killed_node(message: Message, flower: SimpleNamespace) -> Any:
    return flower.failure(message, 5, "Node unavailable", by_superlink=True)


def killed_process(message: Message, flower: SimpleNamespace) -> Any:
    return flower.failure(message, 8)


def expired(message: Message, flower: SimpleNamespace) -> Any:
    return flower.failure(message, 3, by_superlink=True)


def silence(message: Message, flower: SimpleNamespace) -> None:
    return None


MISHAPS: dict[Callable[..., Any], str] = {
    nan: "not finite",
    wrong_shape: r"wrong shape: 'a.weight' is \(4, 3\), the global model's \(3, 4\)",
    wrong_dtype: "wrong dtype: 'a.weight' is int64",
    float_counter: "wrong dtype: 'b.count'",
    missing_array: "lacks 'a.bias'",
    further_array: "unknown array 'c'",
    garbage: "unreadable: 'a.weight'",
    truncated: "more or fewer bytes",
    pickled: "Python objects",
    no_examples: "no metric 'num-examples'",
    negative_examples: "'num-examples' is -5",
    infinite_examples: "'num-examples' is inf",
    listed_examples: "'num-examples' is",
    no_metrics: "0 MetricRecords",
    no_arrays: "0 ArrayRecords",
    two_models: "2 ArrayRecords",
    exception: "exception: ValueError: disk full",
    killed_node: "node unavailable",
    killed_process: "client process died",
    expired: "no reply before the message expired",
    silence: "no reply before the deadline",
}


@pytest.mark.parametrize("mishap", MISHAPS, ids=lambda mishap: mishap.__name__)
def test_a_lost_client_is_the_letters_erroneous_uplink(
    mishap: Callable[..., Any],
    flower: SimpleNamespace,
    arrays: ArrayRecord,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Round 2 of 3 goes wrong for one client: the rule must see the global model in its place."""
    rule = fedhaw.FedHAW(eta=0.1, eta_gamma=1e-3, eta_lambda=1e-1)
    good = flower.moving("bad", 0.4, 20)

    def unlucky(message: Message) -> Any:
        now = round_of(message)
        return mishap(message, flower) if now == 2 else good(message)

    clients = {7: flower.moving("1", 0.1), 8: unlucky, 9: flower.moving("2", -0.2)}
    strategy = RuleStrategy(rule, fraction_evaluate=0.0, round_deadline=0.2)
    result = strategy.start(flower.Grid(clients), arrays, num_rounds=2)

    w, state = flat(arrays), rule.init()
    names, sizes = ("1", "2", "bad"), (10, 10, 20)
    for lost in (False, True):
        W = np.stack([w + np.float32(step) for step in (0.1, -0.2, 0.0 if lost else 0.4)])
        if mishap in LATE_EXAMPLES and lost:
            sizes = (10, 10, 10)
        w, state = rule.aggregate(state, Round(w, W, sizes, [True, True, not lost], names))
    np.testing.assert_array_equal(flat(result.arrays), w)

    report = strategy.reports[1]
    assert list(report.lost) == ["bad"]
    import re

    assert re.search(MISHAPS[mishap], report.lost["bad"])
    assert result.train_metrics_clientapp[2]["clients-lost"] == 1
    assert result.train_metrics_clientapp[2]["lost/bad"] == 1
    assert any("client bad" in r.message and r.levelname == "WARNING" for r in caplog.records)


# These replies state, validly, that the client now holds 10 samples; FedHAW does not look at the
# sizes of clients it knows, so that the result is the same.
LATE_EXAMPLES = {nan, wrong_shape, wrong_dtype, float_counter, garbage, truncated, pickled}


def test_finite_but_absurd_numbers_do_not_end_the_run(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    def absurd(message: Message) -> Any:
        values = np.full((3, 4), 3e38, np.float32)
        return flower.reply(message, changed(message, "a.weight", Array(values)), "bad", 1000)

    rule = fedhaw.FedHyperG()  # takes the plain mean, and lengthens the step
    clients = {1: flower.moving("a", 0.1), 2: absurd, 3: absurd_too(flower)}
    strategy = RuleStrategy(rule, fraction_evaluate=0.0)
    result = strategy.start(flower.Grid(clients), arrays, num_rounds=3)
    assert np.isfinite(flat(result.arrays)).all()
    assert np.abs(flat(result.arrays)).max() < 10


def absurd_too(flower: SimpleNamespace) -> Callable[[Message], Any]:
    def answer(message: Message) -> Any:
        values = np.full((3, 4), 3e38, np.float32)
        return flower.reply(message, changed(message, "a.weight", Array(values)), "worse", 1000)

    return answer


def test_everybody_lost_leaves_model_and_state_and_the_run_goes_on(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    def without_round_two(step: float, client: str) -> Callable[[Message], Any]:
        good = flower.moving(client, step)
        return lambda m: None if round_of(m) == 2 else good(m)

    rule = fedhaw.FedHAW(eta=0.1, eta_gamma=1e-3, eta_lambda=1e-1)
    clients = {k: without_round_two(0.1 * k, str(k)) for k in range(3)}
    strategy = RuleStrategy(rule, fraction_evaluate=0.0, round_deadline=0.1)
    models = []
    strategy.start(
        flower.Grid(clients),
        arrays,
        num_rounds=3,
        evaluate_fn=lambda _, record: models.append(flat(record)),
    )
    np.testing.assert_array_equal(models[1], models[2])
    assert (models[2] != models[3]).any()
    assert len(strategy.reports[1].lost) == 3
    # Though silent in round 2, they are asked in round 3: there is nobody else.
    assert strategy.reports[2].lost == {}


def test_everybody_lost_from_the_start_still_returns_the_model(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    clients = {k: lambda m: flower.failure(m, 2, "boom") for k in range(3)}
    result = RuleStrategy(fedhaw.FedAvg(), fraction_evaluate=0.0).start(
        flower.Grid(clients), arrays, num_rounds=2
    )
    np.testing.assert_array_equal(flat(result.arrays), flat(arrays))
    assert result.train_metrics_clientapp[2]["clients-lost"] == 3


def test_two_nodes_with_one_client_id_are_both_refused(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    clients = {1: flower.moving("a", 0.1), 2: flower.moving("a", 5.0), 3: flower.moving("b", 0.2)}
    strategy = RuleStrategy(fedhaw.FedAvg(), fraction_evaluate=0.0)
    result = strategy.start(flower.Grid(clients), arrays, num_rounds=1)
    assert list(strategy.reports[0].lost) == ["a"]
    assert "duplicate client id" in strategy.reports[0].lost["a"]
    np.testing.assert_allclose(flat(result.arrays), flat(arrays) + 0.2, rtol=1e-5)


def test_a_registered_node_bound_to_its_client_beats_an_impostor(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    grid = flower.Grid(
        {1: flower.moving("a", 0.1), 2: flower.moving("a", 5.0), 3: flower.moving("a", 9.0)},
        names={1: "hospital-a", 3: "hospital-b"},
    )
    strategy = RuleStrategy(
        fedhaw.FedAvg(),
        fraction_evaluate=0.0,
        node_clients={"hospital-a": "a", "hospital-b": "b"},
    )
    result = strategy.start(grid, arrays, num_rounds=1)
    assert strategy.reports[0].lost == {
        "node 2": "claims to be 'a', which is bound to another node",
        "b": "claims to be 'a' but its node is bound to 'b'",
    }
    np.testing.assert_allclose(flat(result.arrays), flat(arrays) + 0.1, rtol=1e-5)


def test_a_silent_node_is_asked_again_with_growing_pauses(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    asked: list[int] = []
    good = flower.moving("gone", 0.3, 30)

    def dies(message: Message) -> Any:
        asked.append(round_of(message))
        return good(message) if asked[-1] == 1 else None

    clients = {1: flower.moving("a", 0.1), 2: dies}
    strategy = RuleStrategy(fedhaw.FedAvg(), fraction_evaluate=0.0, round_deadline=0.02)
    strategy.start(flower.Grid(clients), arrays, num_rounds=20)
    assert asked == [1, 2, 4, 7, 12]
    # Asked or spared, it is lost all the same and keeps its weight.
    assert all("gone" in report.lost for report in strategy.reports[1:])
    assert strategy.reports[2].lost["gone"] == "silent before, to be asked again in round 4"
    assert strategy.reports[2].weights["gone"] == pytest.approx(0.75)


def test_who_comes_back_is_asked_every_round_again(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    asked: list[int] = []
    good = flower.moving("flaky", 0.3)

    def flaky(message: Message) -> Any:
        asked.append(round_of(message))
        return None if asked[-1] in (2, 6) else good(message)

    clients = {1: flower.moving("a", 0.1), 2: flaky}
    strategy = RuleStrategy(fedhaw.FedAvg(), fraction_evaluate=0.0, round_deadline=0.02)
    strategy.start(flower.Grid(clients), arrays, num_rounds=9)
    assert asked == [1, 2, 4, 5, 6, 8, 9]


def test_a_restarted_node_brings_its_client_back_while_flower_lists_the_old_one(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    clients: dict[int, Any] = {1: flower.moving("a", 0.1), 2: flower.moving("b", 0.3)}
    grid = flower.Grid(clients)

    def restart(server_round: int, _: ArrayRecord) -> None:
        if server_round == 1:
            clients[2] = lambda message: None
            clients[22] = flower.moving("b", 0.3)

    strategy = RuleStrategy(fedhaw.FedAvg(), fraction_evaluate=0.0, round_deadline=0.05)
    strategy.start(grid, arrays, num_rounds=4, evaluate_fn=restart)
    assert strategy.cohorts == [("a", "b")] * 4
    assert [dict(report.lost) for report in strategy.reports] == [{}] * 4


def test_a_roll_call_gives_a_client_its_weight_before_it_was_ever_heard(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    good = flower.moving("b", 0.3, 30)

    def mute(message: Message) -> Any:
        return good(message) if message.metadata.message_type == "query" else None

    clients = {1: flower.moving("a", 0.1, 10), 2: mute}
    strategy = RuleStrategy(
        fedhaw.FedAvg(), fraction_evaluate=0.0, round_deadline=0.05, roll_call=True
    )
    strategy.start(flower.Grid(clients), arrays, num_rounds=1)
    assert strategy.reports[0].weights == {"a": 0.25, "b": 0.75}
    assert list(strategy.reports[0].lost) == ["b"]


def test_a_client_never_heard_of_is_lost_by_its_node_and_has_no_weight(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    clients = {1: flower.moving("a", 0.1), 2: lambda message: None}
    strategy = RuleStrategy(fedhaw.FedAvg(), fraction_evaluate=0.0, round_deadline=0.05)
    strategy.start(flower.Grid(clients), arrays, num_rounds=1)
    assert strategy.cohorts[0] == ("a",)
    assert list(strategy.reports[0].lost) == ["node 2"]


def test_a_bad_evaluation_is_left_out(flower: SimpleNamespace, arrays: ArrayRecord) -> None:
    def no_number(message: Message) -> Any:
        if message.metadata.message_type == "evaluate":
            return Message(RecordDict({"m": MetricRecord({"accuracy": 9.0})}), reply_to=message)
        return flower.moving("b", 0.1)(message)

    def breaks(message: Message) -> Any:
        if message.metadata.message_type == "evaluate":
            return flower.failure(message, 2, "boom")
        return flower.moving("c", 0.1)(message)

    clients = {1: flower.moving("a", 0.1), 2: no_number, 3: breaks}
    result = RuleStrategy(fedhaw.FedAvg()).start(flower.Grid(clients), arrays, num_rounds=2)
    assert result.evaluate_metrics_clientapp[2]["accuracy"] == 0.5


def test_replies_nobody_waits_for_are_ignored(flower: SimpleNamespace, arrays: ArrayRecord) -> None:
    clients = {1: flower.moving("a", 0.1), 2: flower.moving("b", 0.2)}
    grid = flower.Grid(clients)
    strategy = RuleStrategy(fedhaw.FedAvg())
    messages = strategy.configure_train(1, arrays, ConfigRecord(), grid)
    replies = grid.pull_messages(grid.push_messages(messages))
    stray = flower.reply(messages[0], arrays, "c")
    stray.metadata.__dict__["_reply_to_message_id"] = "of another round"
    strategy.aggregate_train(1, [stray, *replies, replies[0]])
    assert strategy.cohorts[0] == ("a", "b")
    assert strategy.reports[0].lost == {}


def test_clients_without_any_samples_leave_the_model_as_it_is(
    flower: SimpleNamespace, arrays: ArrayRecord
) -> None:
    clients = {k: flower.moving(k, 0.1, 0) for k in range(2)}
    strategy = RuleStrategy(fedhaw.FedAvg(), fraction_evaluate=0.0)
    result = strategy.start(flower.Grid(clients), arrays, num_rounds=2)
    np.testing.assert_array_equal(flat(result.arrays), flat(arrays))
    assert "num_examples is 0" in str(strategy.reports[0].note)

"""The general form: what it has as special cases, and what it does with a user's formula."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from suite import BACKENDS, FORMULAS, LAYERS, Federation

import fedhaw
from fedhaw.data import from_arrays
from fedhaw.hypergradient import Models, log_shares
from fedhaw.rules import InvalidClientModel, InvalidRound, InvalidRule, Round, Rule
from fedhaw.rules.fedhaw import FedHAWState

ETA, ETA_GAMMA, ETA_LAMBDA = 0.1, 1e-3, 1e-2
MEAN: dict[str, Any] = {
    "formula": lambda c, m: c["a"] * m.W.mean(0),
    "start": {"a": 1.0},
    "rates": {"a": 0.1},
}


def full(**options: Any) -> fedhaw.FedHAW:
    return fedhaw.FedHAW(ETA, ETA_GAMMA, ETA_LAMBDA, jacobian="full", **options)


def by_formula() -> fedhaw.HypergradientRule:
    rule = FORMULAS["fedhaw_by_formula"](ETA, ETA_GAMMA, ETA_LAMBDA)
    assert isinstance(rule, fedhaw.HypergradientRule)
    return rule


def lossy_run(
    rule: Rule[Any], seed: int, dtype: Any, backend: str = "numpy", sampled: bool = False
) -> Iterator[tuple[np.ndarray, Any]]:
    """Eight rounds with lost uploads; cohorts, losses and noise do not depend on the rule."""
    federation = Federation(6, seed, dtype)
    federation.num_examples[seed % 6] *= 5
    state, w = rule.init(), federation.start
    for t in range(8):
        random = np.random.default_rng([seed, t, 7])
        cohort = random.permutation(6)[: random.integers(1, 7)] if sampled else np.arange(6)
        received = random.random(len(cohort)) < 0.6
        W = federation.client_models(w, t)[cohort]
        W[~received] = w
        asked = Round(
            BACKENDS[backend](w), BACKENDS[backend](W), federation.num_examples[cohort], received,
            [federation.names[k] for k in cohort], LAYERS,
        )  # fmt: skip
        model, state = rule.aggregate(state, asked)
        w = np.asarray(model)
        yield w, state


@pytest.mark.parametrize("sampled", [False, True], ids=["everybody", "sampled"])
@pytest.mark.parametrize(("dtype", "accuracy"), [(np.float32, 1e-5), (np.float64, 1e-12)])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", range(4))
def test_fedhaw_with_the_full_jacobian_is_a_special_case(
    seed: int, backend: str, dtype: Any, accuracy: float, sampled: bool
) -> None:
    ours = lossy_run(by_formula(), seed, dtype, backend, sampled)
    theirs = lossy_run(full(), seed, dtype, backend, sampled)
    for (model, state), (expected, reference) in zip(ours, theirs, strict=True):
        scale = float(np.abs(expected).max())
        np.testing.assert_allclose(model, expected, rtol=0, atol=accuracy * scale)
        assert state.metrics["gamma"] == pytest.approx(reference.gamma, abs=accuracy)
        np.testing.assert_allclose(
            state.coefficients["lambda"], reference.lambdas, rtol=0, atol=accuracy
        )
        np.testing.assert_allclose(state.weights, reference.weights, atol=accuracy)
        assert state.clients == reference.clients
    assert abs(reference.gamma) > 100 * accuracy, "the coefficients moved"
    if not sampled:
        shares = Federation(6, seed).num_examples * np.where(np.arange(6) == seed % 6, 5, 1)
        assert np.abs(reference.weights - shares / shares.sum()).max() > 20 * accuracy


@pytest.mark.parametrize(("dtype", "accuracy"), [(np.float32, 1e-5), (np.float64, 1e-12)])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("limits", [(-0.8, 4.0), (-0.01, 0.02)])
@pytest.mark.parametrize("sampled", [False, True], ids=["everybody", "sampled"])
def test_fedhyper_is_a_special_case(
    sampled: bool, limits: tuple[float, float], backend: str, dtype: Any, accuracy: float
) -> None:
    for seed in range(4):
        ours = lossy_run(FORMULAS["fedhyper_by_formula"](*limits), seed, dtype, backend, sampled)
        theirs = lossy_run(fedhaw.FedHyperG(*limits), seed, dtype, backend, sampled)
        for (model, state), (expected, reference) in zip(ours, theirs, strict=True):
            scale = float(np.abs(expected).max())
            np.testing.assert_allclose(model, expected, rtol=0, atol=accuracy * scale)
            assert float(state.coefficients["a"][0]) == pytest.approx(reference.a, abs=accuracy)
        assert reference.a != 0


def test_hypergradients_are_those_of_fedhaw() -> None:
    _, (last, _, theirs) = Federation(5).rounds(full(), "numpy", 2)
    _, (_, _, ours) = Federation(5).rounds(by_formula(), "numpy", 2)
    # The next model is what the state made: dA/dgamma of FedHAW is w itself.
    _, after = full().aggregate(theirs, replace_model(last, theirs))
    slopes = by_formula().hypergradients(ours, replace_model(last, theirs))
    to_gamma, to_lambda = theirs.gamma - after.gamma, theirs.lambdas - after.lambdas
    assert ETA_GAMMA * float(slopes["gamma"]) == pytest.approx(to_gamma, rel=1e-10)
    np.testing.assert_allclose(ETA_LAMBDA * slopes["lambda"], to_lambda, rtol=1e-8)


def replace_model(last: Round, state: FedHAWState) -> Round:
    """A round that follows `state`, whose clients move as they did before."""
    w = np.exp(state.gamma) * state.weights @ state.previous
    return replace(last, global_model=w, client_models=w + last.client_models - last.global_model)


def test_the_derivative_is_that_of_the_aggregation() -> None:
    """A loss of which g is the gradient falls, by finite differences, as the hypergradient says."""
    rule = FORMULAS["per_layer_gamma"](len(LAYERS), 0.1)
    _, (last, _, state) = Federation(5, 3).rounds(rule, "torch", 2)
    w, W = last.global_model, last.client_models
    g = sum(float(p) * (w - row) for p, row in zip(last.shares, W, strict=True)) / 0.1
    stretch = (
        torch.tensor(state.metrics["gamma"]).exp().repeat_interleave(torch.tensor([7, 13, 11]))
    )
    slopes = rule.hypergradients(state, last)["gamma"]
    for layer, slope in zip(LAYERS, slopes, strict=True):
        average = torch.tensor(state.shares) @ state.previous
        expected = (stretch * g)[layer] @ (stretch * average)[layer]
        assert float(slope) == pytest.approx(float(expected), rel=1e-10)


def test_a_gamma_for_every_layer_moves_each_by_itself() -> None:
    rule = FORMULAS["per_layer_gamma"](len(LAYERS), 0.1)
    *_, (_, state) = lossy_run(rule, 0, np.float32)
    assert len(set(state.metrics["gamma"])) == len(LAYERS)
    assert np.all(np.abs(state.metrics["gamma"]) < 0.5)


def test_coefficients_without_a_rate_stay() -> None:
    rule = FORMULAS["fedhaw_by_formula"](ETA, ETA_GAMMA, 0.0)
    still = FORMULAS["fedhaw_by_formula"](ETA, 0.0, 0.0)
    reference = full(learn="gamma")
    for (model, state), (expected, theirs) in zip(
        lossy_run(rule, 1, np.float64), lossy_run(reference, 1, np.float64), strict=True
    ):
        np.testing.assert_allclose(model, expected, rtol=1e-12)
        np.testing.assert_allclose(state.weights, theirs.weights, rtol=1e-12)
    for (model, _), (expected, _) in zip(
        lossy_run(still, 1, np.float64), lossy_run(fedhaw.FedAvg(), 1, np.float64), strict=True
    ):
        np.testing.assert_allclose(model, expected, rtol=1e-12)


def test_a_client_without_data_joins_when_it_has_some() -> None:
    federation = Federation(3)
    results = []
    rules: list[Rule[Any]] = [by_formula(), full()]
    for rule in rules:
        state, w = rule.init(), federation.start
        for t, examples in enumerate([[5, 0, 5], [5, 10, 5], [5, 10, 5]]):
            asked = Round(w, federation.client_models(w, t), examples)
            w, state = rule.aggregate(state, asked)
            results.append((np.asarray(w), state.weights))
    for (w, weights), (expected, reference) in zip(results[:3], results[3:], strict=True):
        np.testing.assert_allclose(w, expected, rtol=1e-11)
        np.testing.assert_allclose(weights, reference, rtol=1e-11)
    assert results[0][1][1] == 0
    assert results[1][1][1] == pytest.approx(0.5)


def test_a_step_out_of_bounds_is_held_or_clipped() -> None:
    for beyond, expected in (("hold", 1.0), ("clip", 1.001)):
        rule = fedhaw.HypergradientRule(
            **MEAN,
            eta=1e-9,
            limits={"a": (0.999, 1.001)},
            beyond=beyond,  # type: ignore[arg-type]
        )
        *_, (_, _, state) = Federation(3, 2).rounds(rule, "numpy", 2)
        value = float(state.coefficients["a"][0])
        assert value == pytest.approx(expected) or (beyond == "clip" and value == 0.999)
        assert (state.note is not None) == (beyond == "hold")
        if state.note:
            assert "out of bounds; coefficients stayed" in state.note


def test_what_is_not_finite_leaves_the_coefficients() -> None:
    rule = by_formula()
    _, (last, _, _) = Federation(3, dtype=np.float32).rounds(rule, "numpy", 2)
    huge = replace(last, client_models=last.client_models * np.float32(1e21))
    _, state = rule.aggregate(rule.init(), huge)
    model, after = rule.aggregate(state, huge)
    assert np.isfinite(model).all()
    assert after.note == "the hypergradient is not finite; coefficients stayed"
    assert after.metrics["gamma"] == 0

    steep = fedhaw.HypergradientRule(
        lambda c, m: c["a"].exp() * m.W.mean(0), start={"a": 0.0}, rates={"a": 1e9}, eta=1e-3,
        gradient=None,
    )  # fmt: skip
    towards = Round(last.global_model, last.client_models * 2, [1, 1, 1])
    _, state = steep.aggregate(steep.init(), towards)
    model, after = steep.aggregate(state, towards)
    assert np.isfinite(model).all()
    assert after.note == "the stepped model is not finite; coefficients stayed"
    assert after.coefficients["a"] == 0


def test_a_formula_that_is_never_finite_is_told() -> None:
    rule = fedhaw.HypergradientRule(
        lambda c, m: c["a"].log() * m.w, start={"a": -1.0}, rates={"a": 0.1}, eta=1.0
    )
    with pytest.raises(InvalidRound, match="correct the formula"):
        next(Federation(2).rounds(rule, "numpy", 1))


def test_a_median_does_not_hide_a_poisoned_upload() -> None:
    rule = fedhaw.HypergradientRule(
        lambda c, m: m.w + c["step"] * (m.W - m.w).median(0).values,
        start={"step": 1.0}, rates={"step": 1e-2}, eta=0.1,
    )  # fmt: skip
    _, (last, _, state) = Federation(5).rounds(rule, "torch", 2)
    assert state.coefficients["step"] != 1
    last.client_models[2, 0] = torch.inf
    with pytest.raises(InvalidClientModel, match="'client-2'"):
        rule.aggregate(state, last)


@pytest.mark.parametrize("made", ["backwards", "read-only", "big-endian"])
def test_arrays_that_torch_does_not_share(made: str) -> None:
    federation, rule = Federation(3), by_formula()
    w, W = federation.start, federation.client_models(federation.start, 0)
    expected, _ = rule.aggregate(rule.init(), Round(w, W, [1, 2, 3]))
    if made == "backwards":
        W = W[::-1].copy()[::-1]
    elif made == "big-endian":
        w, W = w.astype(">f8"), W.astype(">f8")
    else:
        w.setflags(write=False)
        W.setflags(write=False)
    model, _ = rule.aggregate(rule.init(), Round(w, W, [1, 2, 3]))
    np.testing.assert_array_equal(model, expected)


def test_the_state_does_not_share_what_the_caller_overwrites() -> None:
    rule = fedhaw.HypergradientRule(
        lambda c, m: c["a"] * m.W[0], start={"a": 1.0}, rates={"a": 0.0}, eta=1.0
    )
    federation = Federation(2)
    w, W = (
        torch.tensor(a) for a in (federation.start, federation.client_models(federation.start, 0))
    )
    model, state = rule.aggregate(rule.init(), Round(w, W, [1, 1]))
    kept = model.clone()
    w.zero_()
    W.zero_()
    assert torch.equal(model, kept)
    assert state.global_model is not None
    assert state.global_model.abs().sum() > 0


def test_joining_gets_known_values() -> None:
    seen: list[tuple[list[float], list[float]]] = []

    def joining(shares: np.ndarray, known: np.ndarray) -> np.ndarray:
        seen.append((shares.tolist(), known.tolist()))
        return shares

    rule = fedhaw.HypergradientRule(
        lambda c, m: c["p"] @ m.W, start={"p": joining}, rates={"p": 0.0}, eta=1.0
    )
    w = np.ones(3)
    _, state = rule.aggregate(rule.init(), Round(w, np.ones((2, 3)), [1, 3], clients="ab"))
    _, state = rule.aggregate(state, Round(w, np.ones((2, 3)), [1, 1], clients="cb"))
    _, state = rule.aggregate(state, Round(w, np.ones((2, 3)), [1, 1], clients="cb"))
    assert state.coefficients["p"].tolist() == [0.5, 0.75]
    assert [shares for shares, _ in seen] == [[0.25, 0.75], [0.5, 0.5]]
    assert np.isnan(seen[1][1][0])
    assert seen[1][1][1] == 0.75


def test_log_shares_keeps_what_the_others_have_learnt() -> None:
    logits = log_shares(np.array([0.5, 0.25, 0.25]), np.array([np.nan, 3.0, 4.0]))
    known = np.array([logits[0], 3.0, 4.0])
    weights = np.exp(known) / np.exp(known).sum()
    assert weights[0] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"formula": None}, "formula must be a function"),
        ({"gradient": lambda c, m: m.w}, "either eta"),
        ({"eta": None}, "either eta"),
        ({"eta": 0.0}, "eta > 0"),
        ({"rates": {}}, "same names"),
        ({"rates": {"a": -1.0}}, r"rates\['a'\] >= 0"),
        ({"start": {"a": np.nan}}, "must be finite"),
        ({"start": {"a": "one"}}, "not an array"),
        ({"limits": {"b": (0, 1)}}, "'b', which has no start"),
        ({"limits": {"a": (2, 3)}}, "within its limits 2 and 3"),
        ({"beyond": "stop"}, "'hold', 'clip'"),
    ],
)
def test_mistakes_in_the_making(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidRule, match=told):
        fedhaw.HypergradientRule(**{**MEAN, "eta": 1.0, **changes})


class _Square(torch.autograd.Function):
    """A function that can be differentiated backwards only."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x**2

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        return 2 * ctx.saved_tensors[0] * slopes[0]


square: Any = _Square.apply


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"formula": lambda c, m: c["a"] * m.W}, r"the model's shape \(31,\)"),
        ({"formula": lambda c, m: 3.0}, "got float"),
        ({"formula": lambda c, m: c["a"] * square(m.W).mean(0)}, "as gradient"),
        ({"weights": lambda c, m: m.shares - 1}, "0 or more"),
        ({"start": {"a": lambda shares, known: 1.0}}, "each of the round's 3 clients"),
    ],
)
def test_mistakes_in_a_function(changes: dict[str, Any], told: str) -> None:
    rule = fedhaw.HypergradientRule(**{**MEAN, "eta": 1.0, **changes})
    with pytest.raises(InvalidRule, match=told):
        list(Federation(3).rounds(rule, "numpy", 2))


def test_the_state_of_another_formula_or_model() -> None:
    rule = fedhaw.HypergradientRule(**MEAN, eta=1.0)
    *_, (last, _, state) = Federation(3).rounds(rule, "numpy", 2)
    with pytest.raises(InvalidRule, match="go on with the rule that made the state"):
        by_formula().aggregate(state, last)
    with pytest.raises(InvalidRound, match="31 parameters, the round of one with 2"):
        rule.aggregate(state, Round(np.ones(2), np.ones((3, 2)), [1, 1, 1]))
    with pytest.raises(InvalidRound, match="aggregate one first"):
        rule.hypergradients(rule.init(), last)


def test_a_simulation_records_a_gamma_for_every_layer() -> None:
    random = np.random.default_rng(5)
    labels = np.arange(180) % 3
    points = (random.normal(size=(3, 6))[labels] + random.normal(size=(180, 6))).astype(np.float32)
    data = from_arrays(points[60:], labels[60:], points[:60], labels[:60], name="tiny")
    settings: dict[str, Any] = {
        "data": data, "model": "mlp-5", "clients": 4, "split": "iid", "eta": 0.1, "batch": 8,
        "rounds": 6, "engine": "sequential", "uplink": 0.5,
    }  # fmt: skip
    layered = fedhaw.simulate(
        lambda federation: FORMULAS["per_layer_gamma"](len(federation.layout.layers), eta=0.1),
        **settings,
    )
    assert np.asarray(layered.metrics["gamma"]).shape == (6, 2)
    assert np.asarray(layered.metrics["gamma"])[-1].all()
    ours, theirs = (fedhaw.simulate(rule, **settings) for rule in (by_formula(), full()))
    np.testing.assert_allclose(ours.metrics["gamma"], theirs.metrics["gamma"], atol=1e-6)
    np.testing.assert_allclose(np.asarray(ours.model), np.asarray(theirs.model), atol=1e-5)


def test_models_have_one_dtype_and_device() -> None:
    dtypes = set()

    def formula(c: dict[str, torch.Tensor], m: Models) -> torch.Tensor:
        dtypes.update({c["a"].dtype, m.w.dtype, m.W.dtype, m.shares.dtype})
        assert m.layers == LAYERS
        return c["a"] * (m.shares @ m.W)

    rule = fedhaw.HypergradientRule(formula, {"a": 1.0}, {"a": 1e-3}, eta=0.1)
    w = torch.tensor(Federation(3).start).bfloat16()
    W = torch.stack([w, w * 1.1, w * 0.9])
    state = rule.init()
    for _ in range(2):
        model, state = rule.aggregate(state, Round(w, W, [1, 1, 1], layers=LAYERS))
        assert model.dtype == torch.bfloat16
    assert dtypes == {torch.float32}

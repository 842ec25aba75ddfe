"""Differential privacy for clients: any rule, on the noised sum of clipped updates.

    Delta_k = (w_k - w) min(1, C / |w_k - w|)          no client's word is longer than C
    s       = sum_k Delta_k + Normal(0, (z' C)^2)      of the clients whose upload arrived
    w(t+1)  = what the rule makes of the one model w + s / K

K counts everybody who was asked, so that a lost client is an update of zero and voids nothing. All
clients count alike: their numbers of examples are theirs to keep. Whatever the rule does with
w + s / K, and learns from it over the rounds, is post-processing and costs no privacy.

The guarantee is about one client's data: with or without them (its update is then zero) everything
that was ever sent out is likely almost alike, by a factor of e^epsilon but for a probability delta.
Who takes part, and whose upload arrives, is not hidden. epsilon counts the Gaussian mechanism with
noise multiplier z once for every round in which a client was asked, for the client that was asked
most often, and once more for every round that may have gone out and was held again; nothing is
claimed from who was not drawn, because draws are not secret.

With `quantile` the length C follows the lengths of the n updates that arrived:

    b = (sum_k v_k + Normal(0, sigma_b^2)) / n + 1/2     v_k = 1/2 where 0 < |w_k - w| <= C,
    C <- C exp(-0.2 (b - quantile))                            -1/2 where it is longer, else 0
    z'^-2 = z^-2 - (2 sigma_b)^-2,   sigma_b = max(n / 20, sqrt(5) z)

An update of zero has no word in it, so that one client moves the sum by 1/2 at most; the count
takes at most a twentieth of the privacy, and z is what both together cost. Without it z' = z.

The noise is drawn from a secret, the round, the updates themselves, who arrived, and what the noise
is multiplied by: a round that is computed again from the same uploads, after a crash, gives the
same model, and whatever else is different has other noise. The same noise on two sums would be gone
from their difference, and on one sum twice, but stronger, from the two together.

McMahan, Ramage, Talwar, Zhang, "Learning Differentially Private Recurrent Language Models", 2018;
Andrew, Thakkar, McMahan, Ramaswamy, "Differentially Private Learning with Adaptive Clipping", 2021.
"""

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhaw.rules.accounting import epsilon_of, require_accountant
from fedhaw.rules.base import (
    Array,
    Client,
    InvalidRule,
    Metrics,
    Round,
    Rule,
    Vector,
    check_number,
)
from fedhaw.rules.guards import refusing_other_states, unchanged
from fedhaw.rules.passes import blend, like, to_numpy, update_squares
from fedhaw.rules.updates import mean_update
from fedhaw.rules.within import StateAround

EVERYONE = "everyone"
"""The name under which the rule knows its one client, the noised sum."""

ROUNDING = 1e-5
"""How much shorter than C an update is cut, because lengths are measured in float32."""

RATE = 0.2
"""The step of C on a logarithmic scale, by Andrew and others."""


@dataclass(frozen=True)
class Privacy:
    """How much noise hides a client, and how long its update may be.

    Attributes:
        noise_multiplier: z, the noise in units of `clip`; 1 and more is what people call private.
        clip: C, the longest update, in the unit of the model; with `quantile`, where it starts.
        quantile: the share of updates that C leaves as they are, to be followed over the rounds;
            None keeps C.
        delta: the probability with which epsilon may not hold; well below 1 / number of clients.
    """

    noise_multiplier: float
    clip: float
    quantile: float | None = None
    delta: float = 1e-6

    def __post_init__(self) -> None:
        check_number("Privacy", "noise_multiplier", self.noise_multiplier, above=0)
        check_number("Privacy", "clip", self.clip, above=0)
        if self.quantile is not None:
            check_number("Privacy", "quantile", self.quantile, above=0, below=1)
        check_number("Privacy", "delta", self.delta, above=0, below=1)
        require_accountant()

    def epsilon(self, rounds: int) -> float:
        """The epsilon of a client that was asked in so many rounds."""
        return epsilon_of(self.noise_multiplier, rounds, self.delta)


@dataclass(frozen=True)
class PrivateState(StateAround):
    """The state of the rule within, and what the guarantee has cost so far.

    Attributes:
        inner: the state of the rule within.
        secret: from which all noise is drawn. Who has it can take the noise away again: keep
            checkpoints as you would keep the clients' updates.
        rounds: how many rounds were aggregated.
        clip: C, of the next round.
        asked: how often each client was asked in these rounds.
        epsilon: of the client that was asked most often.
        repeated: how many rounds more may have gone out, and were held again. Nobody knows whom
            they asked, so they count for every client, those that are asked later included.
    """

    secret: str = field(default="", repr=False)
    rounds: int = 0
    clip: float = 0.0
    asked: Mapping[Client, float] = field(default_factory=dict)
    epsilon: float = 0.0
    repeated: int = 0

    @property
    def metrics(self) -> Metrics:
        """What the rule within learnt, epsilon so far, and the length C."""
        return {**self.inner.metrics, "epsilon": self.epsilon, "clip": self.clip}


@refusing_other_states
@dataclass(frozen=True)
class Private:
    """Any rule that can do with the sum of the updates, on a sum that hides each client.

    Attributes:
        rule: the rule within.
        privacy: noise and clipping.
    """

    rule: Rule[Any]
    privacy: Privacy

    def __post_init__(self) -> None:
        if not does_with_the_sum(self.rule):
            raise InvalidRule(
                f"{type(self.rule).__name__} looks at each client's update, which privacy hides; "
                "take a rule that needs only their sum, such as FedAvg(), FedAvgM() or "
                "FedHAWAuto()."
            )

    def going_on(self, state: PrivateState, repeated: int) -> PrivateState:
        """The state after a stop, with so many rounds in all that may have gone out and come again.

        They count in epsilon both times.
        """
        return replace(state, repeated=repeated, epsilon=self._epsilon(state.asked, repeated))

    def init(self) -> PrivateState:
        """The state before the first round, with a secret of its own."""
        return PrivateState(self.rule.init(), secrets.token_hex(32), clip=self.privacy.clip)

    def aggregate(self, state: PrivateState, current: Round) -> tuple[Array, PrivateState]:
        """The next global model, (P,), and the state of the rule that made it."""
        if current.nothing_arrived:
            return unchanged(current), state
        w, W, K, clip = (
            current.global_model,
            current.client_models,
            len(current.clients),
            state.clip,
        )
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.sqrt(update_squares(w, W))
        factors = np.ones(K)
        np.divide(clip * (1 - ROUNDING), lengths, out=factors, where=lengths > clip)
        mean = mean_update(current, factors / K)

        z, sigma_b, clip_after = self.privacy.noise_multiplier, 0.0, clip
        n = np.count_nonzero(current.received)
        if self.privacy.quantile is not None:
            sigma_b = max(n / 20, math.sqrt(5) * z)
            z = (z**-2 - (2 * sigma_b) ** -2) ** -0.5
        strength = z * clip / K
        noise = _noise_of(state, mean, lengths, current.received, (strength, sigma_b, clip))
        if self.privacy.quantile is not None:
            votes = np.where(lengths > clip, -0.5, 0.5)[current.received & (lengths > 0)]
            b = (float(votes.sum()) + noise.normal(0, sigma_b)) / n + 0.5
            clip_after = clip * math.exp(-RATE * (b - self.privacy.quantile))
        hidden = noise.standard_normal(w.shape[0], dtype=np.float32)
        update = blend(1.0, mean, strength, like(w, hidden))

        one = Round(
            w, blend(1.0, w, 1.0, update)[None, :], [1.0], None, (EVERYONE,), current.layers
        )
        model, inner = self.rule.aggregate(state.inner, one)
        asked = {**state.asked, **{name: state.asked.get(name, 0) + 1 for name in current.clients}}
        return model, PrivateState(
            inner,
            state.secret,
            state.rounds + 1,
            clip_after,
            asked,
            self._epsilon(asked, state.repeated),
            state.repeated,
        )

    def _epsilon(self, asked: Mapping[Client, float], repeated: int) -> float:
        times = int(max(asked.values(), default=0)) + repeated
        return self.privacy.epsilon(times) if times else 0.0


def unhidden(beside: bool, statistics: bool) -> str | None:
    """A sentence on what would be sent out without noise; None where that is nothing.

    Args:
        beside: whether clients send something beside their model.
        statistics: whether running statistics are averaged beside the parameters.
    """
    if beside:
        return (
            "Privacy hides models, and not what travels beside them; choose a client update "
            "without a memory."
        )
    if statistics:
        return (
            "The model has running statistics, which are averaged without noise; use layers that "
            "keep none, such as group norm."
        )
    return None


def holds_privacy(rule: object) -> bool:
    """Whether a rule is `Private`, or is around one."""
    if isinstance(rule, Private):
        return True
    if not is_dataclass(rule):
        return False
    return any(holds_privacy(getattr(rule, item.name, None)) for item in fields(rule))


def does_with_the_sum(rule: object) -> bool:
    """Whether a rule works on one model that stands for all clients.

    It says so itself: by ``needs = "sum"`` when nothing is lost by it, otherwise by ``of_the_sum``,
    a sentence on what is left.
    """
    return getattr(rule, "needs", "clients") == "sum" or hasattr(rule, "of_the_sum")


def _noise_of(
    state: PrivateState,
    mean: Array,
    lengths: Vector,
    received: NDArray[np.bool_],
    scales: tuple[float, ...],
) -> np.random.Generator:
    """The generator of the next round's noise, which nobody knows who has not the secret.

    It is the same where all of these are equal, and another one where any is not.

    Args:
        state: has the secret, and knows the round.
        mean: (P,) the sum of the updates as they were cut, divided by K.
        lengths: (K,) how long the updates were.
        received: (K,) whose upload arrived.
        scales: what the noise is multiplied by, and what the updates were cut to.
    """
    key = blake2b(to_numpy(mean).tobytes(), key=bytes.fromhex(state.secret))
    key.update(lengths.tobytes() + received.tobytes() + np.array(scales).tobytes())
    key.update(state.rounds.to_bytes(8))
    return np.random.default_rng(int.from_bytes(key.digest()))

"""FedHAW-auto: learnt momentum, learnt scaling and trust, with no learning rate to set.

    s_k     = p_k / sum over trusted j of p_j        p_k = N_k / N; 0 for who is not trusted
    F       = sum_k s_k (w_k - w)                    over what arrived in time
    d       = F + sum_{k late or lost} s_k m_k       m_k: the late update, or the last, replayed
    A       = cos(F, v(t-1))                         a: its running mean
    theta'  = theta + RATE (A + OFFSET)              at least 0
    beta    = share^n timely sigmoid(theta')         share = sum of s_k over what arrived in time,
                                                     timely: its part of all that arrived,
                                                     n = (1 - 2 a) / 2, within 0 and 1/2; at most
                                                     1 - (1 - |A|) |F| / (share RADIUS l) and
                                                     1 - (1 - |A|) h / 10, h: haste (`auto_pace`)
    v       = beta v(t-1) + d
    c       = cos(d, w)
    gamma'  = LEAK gamma + GAIN max(0, 1 - 2 |c|) c  its sum S within +-SCALING_LIMIT
    r       = calm (S - R) / RETURN                  R: the sum of r; calm: `auto_pace`
    w(t+1)  = exp(gamma' - r) (w + step v)           step = 10 / (h (1 - |A|)), LEAST_STEP to 1

Of this the letter's are exp(gamma), the scaling of the whole model, and the idea that a coefficient
steps along its hypergradient, for which the clients' own updates stand in: dw(t)/dbeta points along
v(t-1) and dw(t)/dgamma along w, so the products are <F, v(t-1)> and <d, w>. Not the letter's: the
division by the lengths, which leaves angles and nothing to tune; the momentum in the place of the
weights' steps; the replay; and trust, which is not a gradient step but a verdict (`trust`). All
numbers but P of them are ratios of lengths and cosines.

- OFFSET: in the noise in which training ends F and v are at 90 to 105 degrees on average, though
  momentum still averages the noise away; only updates that turn back further count against it.
- theta at least 0, beta 1/2: less momentum than that overshoots by nothing. Updates that turn back
  all the same are the clients' own, too long for the landscape, and momentum damps those.
- RADIUS l, l = |w(0)|: what of the updates is not along v may not add up to more; what is along
  it, or against it, is what v is there for. Clients that move far in every round, Adam's above all,
  need no faster server. The length at the start, because such clients inflate the model. A model
  whose first update is longer than itself grows from nothing: there l = |w|.
- REPLAY: what a lost client would send is taken to be what it sent last, fading by this factor for
  every round it stays away. So one update counts five times at the most: clients that move to
  their own optimum in a round would be carried far beyond it otherwise. And it counts as no longer
  than its client's have been lately (`auto_replay`).
- h: haste, which grows with time where updates do not shorten. Momentum would keep the noise of
  such clients ten times as large for ever; so it ends, and steps get shorter than FedAvg's then.
  Not without end: what is to be learnt may change.
- r: a longer model learns faster, and ends worse: it is sure of what it has seen, its clients find
  nothing more to do, and it stays as it is. So what gamma did to the length is a loan, and is
  given back once the updates are short; gamma may not take it again. The clients train against
  it, as against weight decay.
- share: a replayed update is stale; the less arrives, the less of it may add up, unless updates
  agree: then there is a long way to go, and what is stale points there too. An update that comes
  late is as stale and counts as a replayed one does. But it is there more often: momentum,
  which took stale updates for agreement, went too far (docs/simulation.md), so `timely`.
- A client the server stops trusting has weight 0 from the next round on, nothing of it is
  replayed, and v, in which it still is, starts afresh. One that is proven to be against all others
  (`opposition`) has weight 0 at once. Who comes back is on parole: it goes no further than is
  usual (`parole_limits`).
- Of who is said to be `refused` something is replayed only if it is known for as long as a verdict
  takes. Such a client has diverged, so the model has come to where steps are too long for it, and
  v starts afresh then, too.
- Of more than REMEMBERED clients in a round nobody is judged.
- Until a verdict is reached, which takes rounds, nobody shouts: updates that are far too long, or
  against all others, count as shorter ones (`auto_lengths`).

theta starts at 0 and gamma at 0; round 0 is FedAvg. The steps of both are in `auto_coefficients`,
m_k in `auto_replay`. docs/rules/fedhaw-auto.md shows what the rule does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, get_args

import numpy as np

from fedhaw.listing import listed
from fedhaw.rules.auto_coefficients import Coefficients, Part, Shares, coefficients
from fedhaw.rules.auto_lengths import outvoted, parole_limits, shortening, usual_lengths
from fedhaw.rules.auto_replay import replayed
from fedhaw.rules.auto_state import FedHAWAutoState
from fedhaw.rules.base import Array, Client, InvalidRule, Round, Vector, namespace
from fedhaw.rules.guards import checked, unchanged
from fedhaw.rules.lengths import MAJORITY, shortened_note
from fedhaw.rules.opposition import Opponents, opposed
from fedhaw.rules.passes import (
    Angles,
    combine,
    combine_updates,
    like,
    mean_and_angles,
    products,
    stride,
    update_squares,
)
from fedhaw.rules.trust import BEGINNING, REMEMBERED, Evidence

PARTS: tuple[Part, ...] = get_args(Part)


@listed(__name__, "fedhaw-auto", "FedHAW-auto")
@dataclass(frozen=True)
class FedHAWAuto:
    """FedHAW with nothing to tune: the same rule for every model, optimiser and loss rate.

    Attributes:
        without: one of its parts that is left out, to see what it is worth.
    """

    without: Part | None = None

    of_the_sum: ClassVar[str] = (
        "learns momentum and scaling; nobody's update is replayed, and trust in nobody is learnt"
    )

    version: ClassVar[int] = 12

    def __post_init__(self) -> None:
        if self.without is not None and self.without not in PARTS:
            raise InvalidRule(
                f"FedHAWAuto can be had without {', '.join(PARTS)}; got {self.without!r}."
            )

    def without_replay(self) -> "FedHAWAuto":
        """The rule for clients whose updates speak for those absent, as SCAFFOLD's do."""
        return self if self.without is not None else replace(self, without="replay")

    def init(self) -> FedHAWAutoState:
        """The state before the first round."""
        return FedHAWAutoState()

    @np.errstate(over="ignore", invalid="ignore")
    def aggregate(self, state: FedHAWAutoState, current: Round) -> tuple[Array, FedHAWAutoState]:
        """The next global model, (P,), and what was learnt for it."""
        s = _weights(state, current)
        if current.nothing_arrived or not s.any():
            return unchanged(current), state
        w, W = current.global_model, current.client_models
        # The row of a lost upload holds w: it adds nothing to the mean of the updates.
        angles = None
        if len(s) > REMEMBERED:  # K x K numbers would soon be more than the models
            fresh, squares = combine_updates(s, w, W), update_squares(w, W)
        else:
            fresh, angles = mean_and_angles(w, W, s)
            squares = np.diag(angles.gram)
        shares = Shares(float(s[current.received].sum()), float(s[current.in_time].sum()))
        state, factors, opponents = self._doubted(state, current, s, squares, angles)
        too_long, limits = factors < 1, parole_limits(state.evidence, current, squares)
        if too_long.any() or (limits < 1).any() or current.late.any():
            s = s * np.minimum(factors, limits)
            fresh = combine_updates(np.where(current.late, 0.0, s), w, W)
        delta = fresh
        if current.late.any():
            delta = delta + combine_updates(np.where(current.late, s, 0.0), w, W)
        absent, last = ((), None) if self.without == "replay" else replayed(state, current)
        if last is not None:
            weight_of = dict(zip(current.clients, s, strict=True))
            delta = delta + combine(np.array([weight_of[client] for client in absent]), last)

        if any(map(state.evidence.knows, current.refused_clients)):
            state = replace(state, velocity=None)  # where clients diverge the model goes too far
        before = fresh if state.velocity is None else like(fresh, state.velocity)
        inner = products(w, fresh, before, delta)
        held = not (np.isfinite(inner).all() and np.isfinite(squares).all())
        if held:
            checked(fresh, current)
            learnt = Coefficients(0.0, state.theta, 0.0, state.agreement, state.pace, state.start)
        else:
            epsilon = float(namespace(w).finfo(w.dtype).eps)
            learnt = coefficients(state, inner, shares, epsilon, self.without)
        scale = math.exp(learnt.gamma - learnt.back)
        velocity, model = stride(w, before, delta, learnt.momentum, learnt.step, scale)
        evidence, note = state.evidence, None
        if held:
            checked(model, current)
            note = (
                "an update is too large for its square; FedHAW-auto learnt nothing from the round"
            )
        elif self.without != "trust" and angles is not None:
            first = state.pace.rounds < BEGINNING
            evidence = evidence.after(*_compared(evidence, current, angles, factors), first)
            evidence = evidence.against(current.clients[k] for k in opponents.apart)
            note = _note(state.distrusted, evidence.outsiders)
        shortened = [name for name, long in zip(current.clients, too_long, strict=True) if long]
        note = "; ".join(filter(None, (note, shortened_note(shortened)))) or None
        trusted_before = set(evidence.outsiders) <= set(state.distrusted)
        return model, FedHAWAutoState(
            gamma=learnt.gamma,
            scaling=state.scaling + learnt.gamma,
            given_back=state.given_back + learnt.back,
            theta=learnt.theta,
            momentum=learnt.momentum,
            agreement=learnt.agreement,
            pace=learnt.pace,
            start=learnt.start,
            # What a client left in the momentum that is not trusted any more goes with it.
            velocity=velocity if trusted_before else None,
            sent=w,
            previous=W,
            arrived=current.received & ~too_long,
            absent=absent,
            replayed=last,
            evidence=evidence,
            clients=current.clients,
            weights=s,
            note=note,
        )

    def _doubted(
        self,
        state: FedHAWAutoState,
        current: Round,
        s: Vector,
        squares: Vector,
        angles: Angles | None,
    ) -> tuple[FedHAWAutoState, Vector, Opponents]:
        """The state that has seen the lengths, (K,) how much of each update counts, and opponents.

        Args:
            state: before the round.
            current: the round.
            s: (K,) the weights.
            squares: (K,) the squared lengths of the updates.
            angles: between them; None of too many clients.
        """
        factors, opponents = np.ones(len(s)), Opponents()
        moved = current.received & (squares > 0) & (s > 0)
        if self.without == "trust" or not (moved.any() and np.isfinite(squares).all()):
            return state, factors, opponents
        median = float(np.median(np.sqrt(squares[moved])))
        if np.count_nonzero(moved) < MAJORITY:
            median = 0.0  # of so few it says nothing
        else:
            state = replace(state, pace=state.pace.beside(median))
        usual = usual_lengths(state, current, median)
        factors = shortening(current, squares, moved, usual)
        if angles is not None:
            opponents = _opponents(state, current, angles, s)
        if opponents.proven:
            factors[opponents.proven] = 0.0
            state = replace(state, velocity=None)  # their clients may be in there
        if few := [k for k in opponents.updates if k not in opponents.proven]:
            factors[few] *= outvoted(s * factors * np.sqrt(squares), s, usual, few)
        return state, factors, opponents


def _weights(state: FedHAWAutoState, current: Round) -> Vector:
    """(K,) the shares of the trusted clients, summing to 1; all 0 where nobody is trusted."""
    shares = current.shares
    if not state.distrusted:
        return shares
    distrusted = set(state.distrusted)
    trusted = np.where([name in distrusted for name in current.clients], 0.0, shares)
    return trusted / trusted.sum() if trusted.any() else trusted


def _opponents(state: FedHAWAutoState, current: Round, angles: Angles, s: Vector) -> Opponents:
    """The updates that are against all others of the round."""
    here = np.flatnonzero(current.in_time & (s > 0) & (np.diag(angles.gram) > 0))
    apart = len(set(state.distrusted) & set(current.clients))
    most = min(len(s) // 3 - apart, len(here) // 3)
    names = [current.clients[k] for k in here]
    found = opposed(
        angles.gram[np.ix_(here, here)], s[here], _growth(angles)[here],
        np.array([state.evidence.belonged(name) for name in names]), most, state.pace.highest,
    )  # fmt: skip
    # Against all others from the start is who is different, not who is wrong.
    different, early = set(state.evidence.different), state.pace.rounds < BEGINNING
    proven = [k for k in found.proven if not early and names[k] not in different]
    lasting = [k for k in found.apart if k in proven]
    return Opponents(*(here[list(which)].tolist() for which in (found.updates, proven, lasting)))


def _growth(angles: Angles) -> Vector:
    """(K,) the cosines of the updates with the model; 0 where there is none."""
    lengths = np.sqrt(np.diag(angles.gram) * angles.square)
    return np.divide(angles.along, lengths, out=np.zeros(len(lengths)), where=lengths > 0)


def _compared(
    evidence: Evidence, current: Round, angles: Angles, factors: Vector
) -> tuple[Sequence[Client], Vector, Vector, Vector, Vector]:
    """Whose updates arrived in time, and what `Evidence.after` wants to know of them."""
    here = np.flatnonzero(current.in_time)
    gram, examples = angles.gram[np.ix_(here, here)], np.asarray(current.num_examples, dtype=float)
    names = [current.clients[k] for k in here]
    # Who is on parole is watched, however little of a long update counts.
    watched = [name in evidence.parole for name in names]
    counted = np.where(watched, 1.0, factors[here]) * np.sqrt(np.diag(gram))
    return names, gram, _growth(angles)[here], examples[here], counted


def _note(before: Sequence[Client], now: Sequence[Client]) -> str | None:
    """One sentence on whom the server ceased and began to trust."""
    parts = []
    if left := [repr(client) for client in now if client not in before]:
        parts.append(f"stopped trusting client {', '.join(left)}")
    if back := [repr(client) for client in before if client not in now]:
        parts.append(f"trusts client {', '.join(back)} again")
    return f"the server {' and '.join(parts)}" if parts else None

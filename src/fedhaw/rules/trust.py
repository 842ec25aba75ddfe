"""Whom to trust, told from two angles of every client's update.

    growth_k    = running mean over rounds of cos(Delta_k, w),           Delta_k = w_k - w
    likeness_jk = running mean over rounds of cos(Delta_j, Delta_k)
    score_k     = mean of the larger half of likeness_k1, likeness_k2, ...

**Growth.** <Delta_k, w> is client k's part in the hypergradient of gamma, the letter's coefficient:
whether its data ask for a longer or a shorter model. In a net of ReLU layers the logits z grow with
the weights, and -<df_k/dw, w> is, but for the number of layers, the mean over the client's samples
of z_y - sum_c softmax(z)_c z_c: how much better the global model knows the client's labels than it
believes to know them. Training makes that positive, or 0, for all data that fit each other: a
client that alone holds a class is at 0, for the model learns to be in doubt about it. It is
negative where the model is sure and wrong: for labels that have nothing to do with the inputs, or
something else than the others'. Reversed updates turn the signs of all: whoever sends them
stretches the model, and all others, whose labels it now gets wrong, shrink it. So an outsider

- has, with its like, a growth below -MARGIN, or above 0 while the others' is below -MARGIN;
- stands apart from all others in growth by a gap wider than GAP that is clear, together with the
  one in likeness if there is one: gap / spread of the others, added up, is above CLEAR;
- is not *mending*: the updates of these are, on average, still longer than MENDING times the
  longest they have been, as running means. Whatever a model learns asks for shorter and shorter
  updates; what contradicts it asks for longer ones, the more the model learns. So a class that is
  still being learnt is left its time, and so is who finds something to learn when weight decay is
  all that is left to the others;
- was not *different* from the start, where its growth is below the others'. Before anything is
  learnt there is nothing that wrong labels could contradict: their first updates are like the
  others', or at right angles to them. But a client that alone holds a class is against all others
  then, because it asks for another answer to everything: its first update, within the first
  BEGINNING rounds, has a mean cosine with all others below -AGAINST, and APART below the least of
  theirs, as have at most a third of all.

**Likeness** alone proves nothing: a client that alone holds a class is as unlike the others as one
that flips labels. The larger half, because a minority that agrees with itself must not lift itself.
It confirms, where the score is more than NEAR below the least of the others'. Where it does not,
MARGIN and GAP are UNCONFIRMED times as wide: a model that cannot learn all there is to learn is a
little sure and wrong about some honest clients. And it acquits: a single client whose updates are
nearer to all others' than ALIKE, and than most of theirs are, has data that fit the others',
whatever its growth. Only a single one, for several could be near each other.

**Opposition** in a single round (`opposition.py`) is evidence, too, where it is proven: who is
found so again before long is an outsider. Once is not enough: when nearly all is learnt, whoever
still learns something is long and against the others in one round of hundreds.

At most a third of all are outsiders, with at most MINORITY of the data: the fewer the others are,
the more often they lie close together by chance, and a model that learns from few clients with most
of the data is wrong about all others, not about these. Who has less than half of the usual data,
and fewer than ENOUGH samples, is neither judged nor a measure for others: means over so few say
little of it, and it has little weight. Opposition, which is seen where harm is done, asks for
neither.

An outsider stays one until for PROBATION rounds it was *calm*: its growth no further from the
middle of the others' than they are from each other, and its score not NEAR or more below the least
of theirs. But where little is left to learn, little can be reversed, and a liar looks like that,
too. So it comes back on *parole*: it goes no further than is usual (`auto_lengths`), and it is set
apart again if in rounds in which it takes part its updates, as a running mean, get LONGER_AGAIN
times as long as when it came back (or as FAR times the usual), or longer at all while its growth is
more than GAP outside the range of the others', and further from their middle than that range is
wide. Who is right, and counts again, asks for shorter updates; who reverses them for longer and
longer ones. Every time, it takes twice as many calm rounds as the time before. Parole does not end,
for some harm is slow, and who has been set apart once is never taken to be mending.

Cosines know no unit: nothing here depends on the model's, the loss's or the clients' learning rate.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedhaw.rules.base import Client, Vector
from fedhaw.rules.gaps import GAP, NEAR, beyond_the_gap

ALIKE = 0.05
"""In cosines: what updates of data that fit each other have in common, and more."""

AGAIN, FADING = 0.3, 0.9
"""What of an opposition must be left at the next one, and what of it is left after a round: the two
are at most eleven rounds apart. Honest clients' are 25 and more (Adam 0.001, D_alpha 1)."""

BEGINNING, AGAINST, APART = 2, 0.1, 0.3
"""Rounds, and twice cosines; benchmarks/first_updates.py shows how far clients with wrong labels
stay from these, and those with a class of their own go beyond them."""

ACQUAINTED = 5
"""Rounds after which it is known whether a client is like the others."""

LONGER_AGAIN, FAR = 1.25, 6.0
"""Times a length, twice. Of honest clients, after 60 rounds of the long runs, the running mean
grows by a quarter within forty rounds in one to five of a hundred cases, and growth is at most
0.023 outside the range of all others', mostly less than 0.01."""

PROBATION = 40
"""Rounds in a row, for the first time; a client whose honest update would be unlike the others' may
look like them for a while when it is reversed."""

RATE = 0.1
"""The last ten rounds or so count: a client that mends its ways is seen to have done so."""

ROUNDS = 20
"""A client is judged after so many: it takes time until an honest one's data are learnt, or until
reversed updates show in all others. After 10 or 15, some of these others were set apart."""

JUDGED = 7
"""Fewer clients than this are too few for a gap to mean anything."""

ENOUGH = 100
"""Samples; see above. Where all have fewer, half of the usual number is enough."""

MINORITY = 0.4
"""Of the data."""

REMEMBERED = 256
"""Clients whose likenesses are kept; beyond that, those not heard of for longest are forgotten."""


@dataclass(frozen=True)
class Evidence:
    """What is known of the clients, and the verdict on them.

    Attributes:
        seen: in how many rounds each client's update was compared; the longest unheard of first.
        likeness: (n, n) the running means, in the order of `seen`.
        pairs: (n, n) how many rounds are in each.
        growth: the running mean of every client.
        examples: how many samples each client has.
        calm: for how many rounds in a row each outsider has looked like the others.
        probation: how many calm rounds each client that was ever set apart needs, or needed.
        parole: how long the updates of each client on parole were when it came back.
        opposition: what is left of each client's opposition to all others.
        lengths: the running mean of what the lengths of every client's updates counted as; of who
            is on parole, of the lengths themselves.
        peaks: the longest that was so far.
        different: the clients that were against all others before anything was learnt.
        outsiders: the clients that are set apart.
    """

    seen: Mapping[Client, float] = field(default_factory=dict)
    likeness: Vector = field(default_factory=lambda: np.zeros((0, 0)))
    pairs: Vector = field(default_factory=lambda: np.zeros((0, 0)))
    growth: Mapping[Client, float] = field(default_factory=dict)
    examples: Mapping[Client, float] = field(default_factory=dict)
    calm: Mapping[Client, float] = field(default_factory=dict)
    probation: Mapping[Client, float] = field(default_factory=dict)
    parole: Mapping[Client, float] = field(default_factory=dict)
    opposition: Mapping[Client, float] = field(default_factory=dict)
    lengths: Mapping[Client, float] = field(default_factory=dict)
    peaks: Mapping[Client, float] = field(default_factory=dict)
    different: tuple[Client, ...] = ()
    outsiders: tuple[Client, ...] = ()

    def after(
        self,
        names: Sequence[Client],
        gram: Vector,
        growth: Vector,
        examples: Vector,
        counted: Vector,
        first: bool = False,
    ) -> "Evidence":
        """The evidence with one more round, and the verdict that follows.

        Args:
            names: the clients whose updates arrived.
            gram: (K, K) the inner products of those updates.
            growth: (K,) their cosines with the global model.
            examples: (K,) their numbers of samples.
            counted: (K,) the lengths as which they counted.
            first: whether this is one of the first BEGINNING rounds.
        """
        lengths = np.sqrt(np.diag(gram))
        moved = np.flatnonzero(lengths > 0)
        if len(moved) < 3:
            return self
        cosines = gram[np.ix_(moved, moved)] / np.outer(lengths[moved], lengths[moved])
        present = [names[int(k)] for k in moved]
        known = {**self.examples, **dict(zip(present, examples[moved].tolist(), strict=True))}
        strangers = self._against_at_first(present, cosines) if first else []
        different = (*self.different, *strangers)
        grown = replace(self, examples=known, different=different)
        return grown._with(present, cosines, growth[moved], counted[moved])._judged(present)

    def _against_at_first(self, present: Sequence[Client], cosines: Vector) -> list[Client]:
        """Whose first update is against all others, while nothing has been learnt yet."""
        if len(present) < JUDGED:
            return []
        means = (cosines.sum(axis=1) - 1.0) / (len(present) - 1)
        few = means < -AGAINST
        if not 0 < few.sum() <= len(present) // 3 or means[~few].min() - means[few].max() < APART:
            return []
        return [
            client
            for client, against in zip(present, few, strict=True)
            if against and client not in self.seen
        ]

    def against(self, clients: Iterable[Client]) -> "Evidence":
        """The evidence that these clients were against all others; who was lately is set apart."""
        found = set(clients)
        again = {name for name in found if self.opposition.get(name, 0.0) > AGAIN}
        known = replace(self, opposition={**self.opposition, **dict.fromkeys(found, 1.0)})
        return known._with_outsiders({*self.outsiders, *again})

    def _with_outsiders(self, apart: Collection[Client]) -> "Evidence":
        """The verdict that these are the outsiders."""
        new = [name for name in self.seen if name in apart and name not in self.outsiders]
        back = [name for name in self.outsiders if name not in apart]
        known = {**dict.fromkeys(back, float(PROBATION)), **self.probation}
        longer = {name: 2.0 * self.probation.get(name, PROBATION / 2) for name in new}
        most = FAR * self.parole_length
        parole = {**self.parole, **{name: min(self.lengths[name], most) for name in back}}
        return replace(
            self,
            outsiders=tuple(name for name in self.seen if name in apart),
            probation={**known, **longer},
            calm={name: rounds for name, rounds in self.calm.items() if name in apart},
            parole={name: length for name, length in parole.items() if name not in new},
        )

    def knows(self, client: Client) -> bool:
        """Whether a client has been compared for as long as a verdict takes, and is trusted."""
        return self.seen.get(client, 0.0) >= ROUNDS and client not in self.outsiders

    @property
    def parole_length(self) -> float:
        """How far a client on parole may go: as far as is usual among the others."""
        lengths = [self.lengths[name] for name in self._measure(self.lengths)]
        return float(np.median(lengths)) if lengths else np.inf

    def _measure(self, clients: Iterable[Client]) -> list[Client]:
        """Those of some clients by whom others are measured: all that were never doubted.

        Where everybody was, all that are trusted now.
        """
        trusted = [name for name in clients if name not in self.outsiders]
        return [name for name in trusted if name not in self.parole] or trusted

    def belonged(self, client: Client) -> bool:
        """Whether a client has been like the others for some rounds."""
        if self.seen.get(client, 0.0) < ACQUAINTED:
            return False
        i = [*self.seen].index(client)
        known = self.likeness[i][self.pairs[i] > 0]
        return bool(len(known)) and _most_like(known, 2) > ALIKE

    def scores(self, of: int = 2) -> dict[Client, float]:
        """How much each client that can be judged resembles the trusted ones most like it.

        Args:
            of: how many parts; the most like are one of them: half of all, or with 1 all.
        """
        scores = {}
        apart = set(self.outsiders)
        trusted = np.array([client not in apart for client in self.seen])
        for client, rounds, row, pairs in zip(
            self.seen, self.seen.values(), self.likeness, self.pairs, strict=True
        ):
            known = row[trusted & (pairs > 0)]
            if rounds >= ROUNDS and len(known):
                scores[client] = _most_like(known, of)
        return scores

    def _with(
        self, present: Sequence[Client], cosines: Vector, grown: Vector, counted: Vector
    ) -> "Evidence":
        """The running means with one more round of the clients that are present."""
        others = ~np.eye(len(present), dtype=bool)
        order = [client for client in self.seen if client not in set(present)] + list(present)
        order = order[-max(REMEMBERED, len(present)) :]
        likeness, pairs = self._in_order(order, self.likeness), self._in_order(order, self.pairs)
        block = np.ix_(*[range(len(order) - len(present), len(order))] * 2)
        pairs[block] += others
        rates = np.maximum(RATE, 1 / np.maximum(pairs[block], 1))
        likeness[block] += np.where(others, rates * (cosines - likeness[block]), 0.0)

        seen = {client: self.seen.get(client, 0.0) for client in order}
        growth, lengths, peaks = (
            {client: values.get(client, 0.0) for client in order}
            for values in (self.growth, self.lengths, self.peaks)
        )
        for client, value, length in zip(present, grown.tolist(), counted.tolist(), strict=True):
            seen[client] += 1
            rate = max(RATE, 1 / seen[client])
            growth[client] += rate * (value - growth[client])
            if client in self.lengths:  # states before version 9 have none
                lengths[client] += rate * (length - lengths[client])
            else:
                lengths[client] = length
            peaks[client] = max(peaks[client], lengths[client])
        here = set(present)
        fading = {
            client: left * FADING if client in here else left
            for client, left in self.opposition.items()
            if client in seen and left > AGAIN
        }
        return replace(
            self, seen=seen, likeness=likeness, pairs=pairs, growth=growth, opposition=fading,
            lengths=lengths, peaks=peaks,
            different=tuple(client for client in self.different if client in seen),
            examples={client: self.examples.get(client, 0.0) for client in seen},
            calm={client: rounds for client, rounds in self.calm.items() if client in seen},
            probation={name: rounds for name, rounds in self.probation.items() if name in seen},
            parole={client: length for client, length in self.parole.items() if client in seen},
            outsiders=tuple(client for client in self.outsiders if client in seen),
        )  # fmt: skip

    def _judged(self, present: Sequence[Client]) -> "Evidence":
        """The verdict of this round."""
        scores = self.scores()
        judged = self._with_enough_data(scores)
        measure = self._without_stragglers(self._measure(judged))
        if not measure:
            return self
        calm = self._calm(present, scores, measure)
        apart = [name for name in self.outsiders if calm[name] < self._probation(name)]
        room = MINORITY * sum(self.examples[client] for client in scores)
        room -= sum(self.examples[client] for client in apart)
        for name in present:
            few = len(apart) < len(scores) // 3 and len(judged) >= JUDGED
            if few and self.examples[name] <= room and self._relapsed(name, judged, measure):
                apart.append(name)
                room -= self.examples[name]
        rest = [client for client in judged if client not in set(apart)]
        likeness, growth, examples = (
            np.array([values[client] for client in rest])
            for values in (scores, self.growth, self.examples)
        )
        most = min(len(scores) // 3 - len(apart), (len(rest) - 1) // 2)
        suspects = []
        if len(judged) >= JUDGED:
            excused = np.array([client in self.different for client in rest])
            still = np.array([self._length_beside_longest(client) for client in rest])
            beyond = beyond_the_gap(likeness, growth, examples, excused, still, most, room)
            suspects = [rest[k] for k in beyond]
        if not (len(suspects) == 1 and self._is_near_all(suspects[0], rest)):
            apart += suspects
        return replace(self, calm=calm)._with_outsiders(set(apart))

    def _probation(self, client: Client) -> float:
        """For how many rounds in a row an outsider must look like the others."""
        return self.probation.get(client, PROBATION)

    def _length_beside_longest(self, client: Client) -> float:
        """How long a client's updates are beside the longest; 1 for who was set apart before."""
        longest = self.peaks[client] or 1.0
        return 1.0 if client in self.probation else self.lengths[client] / longest

    def _with_enough_data(self, clients: Iterable[Client]) -> list[Client]:
        """Those of whom enough samples are known to tell something."""
        examples = {client: self.examples[client] for client in clients}
        enough = min(ENOUGH, np.median([*examples.values()]) / 2) if examples else 0.0
        return [client for client, number in examples.items() if number >= enough]

    def _is_near_all(self, client: Client, rest: Sequence[Client]) -> bool:
        """Whether a client resembles all others more than most of them do."""
        nearness = self.scores(of=1)
        return nearness[client] > max(ALIKE, float(np.median([nearness[name] for name in rest])))

    def _calm(
        self, present: Sequence[Client], scores: Mapping[Client, float], measure: Sequence[Client]
    ) -> dict[Client, float]:
        """For how many rounds in a row each outsider has looked like the others.

        Args:
            present: whose update arrived.
            scores: of all clients that can be judged.
            measure: the others.
        """
        least = min(scores[client] for client in measure)
        middle, room = self._range_of_growth(measure)
        calm = {client: self.calm.get(client, 0.0) for client in self.outsiders}
        for client in set(present) & calm.keys():
            like_others = scores.get(client, -np.inf) >= least - NEAR
            grows_alike = abs(self.growth[client] - middle) <= room
            calm[client] = calm[client] + 1 if like_others and grows_alike else 0.0
        return calm

    def _relapsed(
        self, client: Client, judged: Collection[Client], measure: Sequence[Client]
    ) -> bool:
        """Whether a client on parole looks like an outsider again."""
        if client not in self.parole or client not in judged:
            return False
        length, before = self.lengths[client], self.parole[client]
        middle, room = self._range_of_growth(measure)
        aside = abs(self.growth[client] - middle) > max(room, room / 2 + GAP)
        return length > LONGER_AGAIN * before or (length > before and aside)

    def _range_of_growth(self, measure: Sequence[Client]) -> tuple[float, float]:
        """The middle of these clients' growth, and how far the ends are apart."""
        grown = np.array([self.growth[client] for client in measure])
        return float(grown.max() + grown.min()) / 2, float(np.ptp(grown))

    def _without_stragglers(self, clients: Sequence[Client]) -> list[Client]:
        """All but those, a third at most on either side, whose growth is GAP from the next."""
        in_order = sorted(clients, key=lambda client: self.growth[client])
        few, most = len(in_order) // 3, len(in_order)
        gaps = np.flatnonzero(np.diff([self.growth[client] for client in in_order]) > GAP) + 1
        first = gaps[gaps <= few].max(initial=0)
        last = gaps[gaps >= most - few].min(initial=most)
        return in_order[first:last]

    def _in_order(self, order: Sequence[Client], matrix: Vector) -> Vector:
        place = {client: i for i, client in enumerate(self.seen)}
        new = [i for i, client in enumerate(order) if client in place]
        old = [place[order[i]] for i in new]
        sorted_matrix = np.zeros((len(order), len(order)))
        sorted_matrix[np.ix_(new, new)] = matrix[np.ix_(old, old)]
        return sorted_matrix


def _most_like(likeness: Vector, of: int) -> float:
    """The mean of the largest, which are one of so many parts."""
    return float(np.sort(likeness)[-max(1, len(likeness) // of) :].mean())

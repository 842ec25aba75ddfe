"""How long a client's update may count in FedHAW-auto.

    l_k       = max(median_j |Delta_j|, median_j own_j, min(own_k, highest) / fall_k)
    too long  : |Delta_k| > (LONG + n_k - 1) l_k          n_k = N_k / median_j N_j, from 1 to LIMIT
    counts as : n_k l_k

own_k is the running mean of what client k's updates counted as, highest the longest median so far,
and 1 / (LONG LIMIT) of that is the least that l_k can be. A median alone will not do. Where most
clients hold data that are soon learnt, theirs are next to nothing after a few rounds, and whoever
still learns something must not count as that: so a client may go on as it was, a client that was
*different* from the start (`trust`) as it is (fall_k = 1), any other at a FALL-th of it. But nobody
begins to be long at once: who lies late, in a federation that has grown quiet, has been short.

Who is on parole (`trust`) goes as far as is usual among the others, and no further. Where these
have learnt all they can, a client that reverses its updates has the longest of all.

Updates that are against all others (`opposition`), which is no proof of a lie, weigh together no
more than HALF of what the others do when they are as long as is usual for these.
"""

from collections.abc import Sequence

import numpy as np

from fedhaw.rules.auto_state import FedHAWAutoState
from fedhaw.rules.base import Array, Round, Vector
from fedhaw.rules.lengths import LIMIT
from fedhaw.rules.trust import Evidence

LONG, FALL, HALF = 6.0, 3.0, 0.5


def usual_lengths(state: FedHAWAutoState, current: Round, median: float) -> Vector:
    """(K,) l_k; infinite where nothing is known.

    Args:
        state: what is known.
        current: the round.
        median: of the round's updates; 0 where these are too few to tell.
    """
    highest, own = state.pace.highest, state.evidence.lengths
    everybody = float(np.median([*own.values()])) if own else median or np.inf
    different = set(state.evidence.different)
    known = [
        min(own.get(client, 0.0), highest) / (1.0 if client in different else FALL)
        for client in current.clients
    ]
    return np.maximum(max(median, everybody, highest / (LONG * LIMIT)), known)


def shortening(current: Round, squares: Vector, moved: Array, usual: Vector) -> Vector:
    """(K,) factors that bring updates which are far too long to a usual length; 1 for others.

    Args:
        current: the round.
        squares: (K,) the squared lengths of its updates.
        moved: (K,) whose updates are there.
        usual: (K,) l_k.
    """
    lengths, examples = np.sqrt(squares), current.shares
    # A client with more data takes more steps and may go further (`lengths`).
    more_data = np.clip(examples / np.median(examples[moved]), 1.0, LIMIT)
    fair = usual * more_data
    too_long = moved & (lengths > usual * (LONG + more_data - 1.0))
    factors: Vector = np.where(too_long, fair / np.maximum(lengths, fair), 1.0)
    return factors


def outvoted(pull: Vector, s: Vector, usual: Vector, few: Sequence[int]) -> float:
    """The factor that leaves those who are against all others half of what these usually weigh.

    Args:
        pull: (K,) weight times length of every update.
        s: (K,) the weights.
        usual: (K,) l_k.
        few: those who are against all others.
    """
    others = np.setdiff1d(np.flatnonzero(s > 0), few)
    room = HALF * float(s[others].sum()) * float(np.mean(usual[few]))
    return min(1.0, room / float(pull[few].sum()))


def parole_limits(evidence: Evidence, current: Round, squares: Vector) -> Vector:
    """(K,) factors that bring the updates of who is on parole to a usual length; 1 for others.

    Args:
        evidence: what is known of the clients.
        current: the round.
        squares: (K,) the squared lengths of its updates.
    """
    watched = np.array([name in evidence.parole for name in current.clients])
    too_long = watched & (squares > evidence.parole_length**2)
    factors: Vector = np.ones(len(squares))
    factors[too_long] = evidence.parole_length / np.sqrt(squares[too_long])
    return factors

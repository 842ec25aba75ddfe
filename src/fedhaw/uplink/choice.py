"""An uplink by its name, or by whatever else a user may write for one."""

import os
from collections.abc import Callable
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from fedhaw.uplink.base import InvalidUplink, Uplink
from fedhaw.uplink.bursty import BurstyUplink
from fedhaw.uplink.by_label import LabelUplink
from fedhaw.uplink.hourly import HourlyUplink, Hours
from fedhaw.uplink.late import LateUplink
from fedhaw.uplink.letter import LetterUplink
from fedhaw.uplink.recorded import RecordedUplink

BY_LOSS_RATE = ("letter", "bursty", "by-label", "late")
"""The uplinks known by name that lose nothing at a loss rate of 0."""

KINDS = (*BY_LOSS_RATE, "hourly")
"""The uplinks that are known by name."""


def uplink_of(
    what: "Uplink | float | str | os.PathLike[str] | None",
    loss_rate: float = 0.0,
    burst: float = 3.0,
    hours: Hours = "sine",
    labels: Callable[[], NDArray[np.int64]] | None = None,
) -> Uplink | None:
    """An uplink from what a user may write for one; None is one that never fails.

    Args:
        what: None, one of `KINDS`, the letter's p_e, the path of a trace, or an uplink.
        loss_rate: p_e of "letter" and "late", the share of all uploads that "bursty" loses, or the
            largest loss probability of "by-label" and of "hourly" at the best hour.
        burst: mean rounds of a burst, for "bursty", or of a delay, for "late".
        hours: how "hourly" changes.
        labels: a function that counts, (K, C), how many samples of each class each client holds,
            for "by-label".

    Raises:
        InvalidUplink: it is none of these.
    """
    if what is None or (isinstance(what, Uplink) and not isinstance(what, type)):
        return what
    if what in BY_LOSS_RATE and not loss_rate:
        return None
    match what:
        case "hourly":
            return HourlyUplink(loss_rate, hours)
        case "letter":
            return LetterUplink(loss_rate)
        case "late":
            return LateUplink(loss_rate, burst)
        case "bursty":
            return BurstyUplink.bursts(loss_rate, burst)
        case "by-label":
            if labels is None:
                raise InvalidUplink("The uplink by-label needs the clients' labels; give labels.")
            return LabelUplink.of(labels(), loss_rate)
    if isinstance(what, (str, os.PathLike)):
        return RecordedUplink.read(what)
    if isinstance(what, Real) and not isinstance(what, bool):
        return LetterUplink(float(what))
    raise InvalidUplink(
        f"uplink is {what!r}; give None, {', '.join(KINDS)}, the letter's p_e, the path of a "
        "trace, or an uplink such as BurstyUplink."
    )

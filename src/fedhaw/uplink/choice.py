"""An uplink by its name, or by whatever else a user may write for one."""

import os
from collections.abc import Callable
from numbers import Real
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedhaw.listing import Listing
from fedhaw.names import OWN, accepted, is_reference, make, no_such
from fedhaw.uplink.base import InvalidUplink, Uplink
from fedhaw.uplink.hourly import Hours
from fedhaw.uplink.letter import LetterUplink
from fedhaw.uplink.recorded import RecordedUplink

UPLINKS: Listing[Callable[..., Uplink | None]] = Listing("uplink")
"""What makes each uplink that is known by name, given those of the settings that it takes."""


def uplink_of(
    what: "Uplink | float | str | os.PathLike[str] | None",
    loss_rate: float = 0.0,
    burst: float = 3.0,
    hours: Hours = "sine",
    labels: Callable[[], NDArray[np.int64]] | None = None,
) -> Uplink | None:
    """An uplink from what a user may write for one; None is one that never fails.

    Args:
        what: None, one of `UPLINKS`, where a user's own stands, such as `my_uplink.py:Uplink`, the
            letter's p_e, the path of a trace, or an uplink.
        loss_rate: how much is lost.
        burst: mean rounds of a burst or a delay.
        hours: how the availability changes over a day.
        labels: a function that counts, (K, C), how many samples of each class each client holds.
            An uplink that is given by its name takes those of these four that it knows.

    Raises:
        InvalidUplink: it is none of these.
    """
    offered = {"loss_rate": loss_rate, "burst": burst, "hours": hours, "labels": labels}
    own = make(what, object, **offered) if isinstance(what, str) and is_reference(what) else what
    if own is None or (isinstance(own, Uplink) and not isinstance(own, type)):
        return own
    if own is not what:
        raise InvalidUplink(f"{what} is not an uplink; an uplink has a method lost, see `Uplink`.")
    if isinstance(what, str) and what in UPLINKS:
        uplink = UPLINKS[what]
        return uplink(**accepted(uplink, offered))
    if isinstance(what, str) and not Path(what).suffix and not Path(what).exists():
        raise InvalidUplink(no_such("uplink", what, tuple(UPLINKS), f"FILE.csv, or {OWN}"))
    if isinstance(what, (str, os.PathLike)):
        return RecordedUplink.read(what)
    if isinstance(what, Real) and not isinstance(what, bool):
        return LetterUplink(float(what))
    raise InvalidUplink(
        f"uplink is {what!r}; give None, {', '.join(UPLINKS)}, the letter's p_e, the path of a "
        "trace, or an uplink such as BurstyUplink."
    )


def may_lose(what: object, loss_rate: float) -> bool:
    """Whether uploads may get lost over an uplink that a recipe names, at a loss rate."""
    if loss_rate or not isinstance(what, str) or what not in UPLINKS:
        return True
    return uplink_of(what) is not None

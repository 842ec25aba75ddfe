"""Which uploads arrive.

Whether client k's upload gets lost in round t depends on (seed, t, k) and on nothing else: neither
on the server's rule, nor on the engine, nor on who else takes part. So all rules of a comparison
see the same losses, and a resumed run sees those of one that was never interrupted; for that no
model of the uplink keeps any state.

- `LetterUplink`: each client has its own loss probability, drawn once, and loses independently.
- `BurstyUplink`: losses come in bursts, after Gilbert (1960) and Elliott (1963).
- `LabelUplink`: losses are tied to what a client alone knows, after Gu et al. (2021).
- `HourlyUplink`: losses come and go by the hour, for all at once, after Xiang et al. (2024).
- `LateUplink`: what the letter's uplink loses comes some rounds later.
- `RecordedUplink`: what was measured somewhere, read from a file.

Anything with a method `lost` of the same kind is an uplink, too; with a method `delays`, one over
which uploads come late. The downlink never fails.
"""

from fedhaw.uplink.base import DelayingUplink, InvalidUplink, Uplink
from fedhaw.uplink.bursty import BurstyUplink
from fedhaw.uplink.by_label import LabelUplink
from fedhaw.uplink.choice import UPLINKS, may_lose, uplink_of
from fedhaw.uplink.hourly import HourlyUplink, Hours
from fedhaw.uplink.late import LateUplink
from fedhaw.uplink.letter import LetterUplink
from fedhaw.uplink.recorded import RecordedUplink

__all__ = [
    "UPLINKS",
    "BurstyUplink",
    "DelayingUplink",
    "HourlyUplink",
    "Hours",
    "InvalidUplink",
    "LabelUplink",
    "LateUplink",
    "LetterUplink",
    "RecordedUplink",
    "Uplink",
    "may_lose",
    "uplink_of",
]

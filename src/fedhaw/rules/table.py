"""The table of fedhaw's rules.

A new rule needs its file, and here its import, its line in the table and its name in `__all__`.
Command line, recipes, histories, reports and the common test-suite read the table; `fedhaw` and
`fedhaw.rules` offer whatever is in `__all__`, where editors and type checkers find it, too.
"""

import re
from dataclasses import dataclass
from typing import Any

from fedhaw.rules.adaptive import FedAdagrad, FedAdam, FedYogi
from fedhaw.rules.base import Rule
from fedhaw.rules.clipped import Clipped
from fedhaw.rules.fedadp import FedAdp
from fedhaw.rules.fedau import FedAU
from fedhaw.rules.fedavg import FedAvg
from fedhaw.rules.fedavg_arrivals import FedAvgArrivals
from fedhaw.rules.fedavgm import FedAvgM
from fedhaw.rules.fedawa import FedAWA
from fedhaw.rules.fedexp import FedExP
from fedhaw.rules.fedhaw import FedHAW
from fedhaw.rules.fedhaw_auto import FedHAWAuto
from fedhaw.rules.fedhyper import FedHyperG
from fedhaw.rules.fedlaw import FedLAW
from fedhaw.rules.fedlws import FedLWS
from fedhaw.rules.fedvarp import FedVARP
from fedhaw.rules.guards import refusing_other_states
from fedhaw.rules.krum import Krum, MultiKrum
from fedhaw.rules.ldawa import LDAWA
from fedhaw.rules.median import Median
from fedhaw.rules.mifa import MIFA
from fedhaw.rules.rfa import RFA
from fedhaw.rules.trimmed_mean import TrimmedMean

__all__ = [
    "LDAWA",
    "MIFA",
    "RFA",
    "Clipped",
    "FedAU",
    "FedAWA",
    "FedAdagrad",
    "FedAdam",
    "FedAdp",
    "FedAvg",
    "FedAvgArrivals",
    "FedAvgM",
    "FedExP",
    "FedHAW",
    "FedHAWAuto",
    "FedHyperG",
    "FedLAW",
    "FedLWS",
    "FedVARP",
    "FedYogi",
    "Krum",
    "Median",
    "MultiKrum",
    "TrimmedMean",
]


@dataclass(frozen=True)
class RuleEntry:
    """One rule, and what it is called.

    Attributes:
        name: in lower case, in histories and before the dot of an option.
        title: how it is printed.
        cls: its dataclass.
        of_the_letter: whether it is one of the six that the letter compares.
        reference: where a user's own rule stands; "" for the rules of the table.
    """

    name: str
    title: str
    cls: type[Rule[Any]]
    of_the_letter: bool = False
    reference: str = ""

    @property
    def key(self) -> str:
        """What finds this rule again: its name, or where it stands."""
        return self.reference or self.name

    @property
    def folder(self) -> str:
        """The folder of its runs: `my_rule.py:MyRule` has `my_rule-myrule`, and no other rule."""
        place = self.reference.replace(".py:", ":")
        return re.sub(r"\W+", "-", place)[-100:].strip("-").lower() or self.name


TABLE = (
    RuleEntry("fedavg", "FedAvg", FedAvg, of_the_letter=True),
    RuleEntry("fedadp", "FedAdp", FedAdp, of_the_letter=True),
    RuleEntry("fedhyper", "FedHyper", FedHyperG, of_the_letter=True),
    RuleEntry("fedlws", "FedLWS", FedLWS, of_the_letter=True),
    RuleEntry("fedlaw", "FedLAW", FedLAW, of_the_letter=True),
    RuleEntry("fedhaw", "FedHAW", FedHAW, of_the_letter=True),
    RuleEntry("fedexp", "FedExP", FedExP),
    RuleEntry("fedhaw-auto", "FedHAW-auto", FedHAWAuto),
    RuleEntry("fedavgm", "FedAvgM", FedAvgM),
    RuleEntry("fedadagrad", "FedAdagrad", FedAdagrad),
    RuleEntry("fedadam", "FedAdam", FedAdam),
    RuleEntry("fedyogi", "FedYogi", FedYogi),
    RuleEntry("mifa", "MIFA", MIFA),
    RuleEntry("fedvarp", "FedVARP", FedVARP),
    RuleEntry("fedau", "FedAU", FedAU),
    RuleEntry("fedawa", "FedAWA", FedAWA),
    RuleEntry("l-dawa", "L-DAWA", LDAWA),
    RuleEntry("fedavg-arrivals", "FedAvg over arrivals", FedAvgArrivals),
    RuleEntry("median", "Median", Median),
    RuleEntry("trimmed-mean", "Trimmed mean", TrimmedMean),
    RuleEntry("krum", "Krum", Krum),
    RuleEntry("multi-krum", "Multi-Krum", MultiKrum),
    RuleEntry("rfa", "RFA", RFA),
    RuleEntry("clipped", "Clipped", Clipped),
)

for _entry in TABLE:
    refusing_other_states(_entry.cls)

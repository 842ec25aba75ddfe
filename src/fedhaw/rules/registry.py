"""The rules by name: those of fedhaw in one table, a user's own by where it stands.

A new rule needs its file and one line in the table below; command line, recipes, histories,
reports and the common test-suite read it.
"""

import re
from dataclasses import dataclass, is_dataclass
from pathlib import PurePath
from typing import Any, TypeGuard

from fedhaw import names
from fedhaw.errors import FedhawError
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
from fedhaw.rules.krum import Krum, MultiKrum
from fedhaw.rules.ldawa import LDAWA
from fedhaw.rules.median import Median
from fedhaw.rules.mifa import MIFA
from fedhaw.rules.rfa import RFA
from fedhaw.rules.trimmed_mean import TrimmedMean


class UnknownRule(FedhawError, ValueError):
    """A rule or an option of a rule that does not exist, or a value it cannot have."""


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


_TABLE = (
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

RULES = {entry.name: entry for entry in _TABLE}
"""Every rule of fedhaw, in the order in which they are listed."""

OF_THE_LETTER = tuple(entry.name for entry in _TABLE if entry.of_the_letter)

_NAME_OF = {entry.cls: entry.name for entry in _TABLE}


def find(name: str) -> RuleEntry:
    """The rule of a name.

    Args:
        name: one of `RULES`, or where a user's own stands, such as `my_rule.py:MyRule`.

    Raises:
        UnknownRule: there is no such rule; the sentence suggests one.
        UnknownName: there is nothing to be loaded there.
    """
    if name in RULES:
        return RULES[name]
    if not names.is_reference(name):
        raise UnknownRule(names.no_such("rule", name, list(RULES)))
    cls = names.load(name)
    if not _is_rule(cls):
        raise UnknownRule(
            f"{name} is not a rule; a rule is a class with @dataclass(frozen=True) and the methods "
            "init and aggregate, see docs/adding-a-rule.md."
        )
    if cls in _NAME_OF:
        return RULES[_NAME_OF[cls]]
    place, _, attribute = name.rpartition(":")
    if place.endswith(".py"):
        place = PurePath(place).as_posix()  # ./my_rule.py is my_rule.py
    short = name_of(cls)
    title = cls.__name__ if short == cls.__name__.lower() else f"own {cls.__name__}"
    return RuleEntry(short, title, cls, reference=f"{place}:{attribute}")


def name_of(cls: type) -> str:
    """The name of a rule's class in histories: the table's, or the class's own in lower case.

    A user's class is never called as a rule of the table is, which has its colour in reports.
    """
    own = cls.__name__.lower()
    return _NAME_OF.get(cls, f"own-{own}" if own in RULES else own)


def title_of(name: str) -> str:
    """How a rule's name is printed; a name that is not of the table as it is."""
    return RULES[name].title if name in RULES else name


def _is_rule(thing: object) -> TypeGuard[type[Rule[Any]]]:
    if not isinstance(thing, type) or not is_dataclass(thing):
        return False
    return all(callable(getattr(thing, method, None)) for method in ("init", "aggregate"))

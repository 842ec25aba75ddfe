"""How the rules look: one colour and one dash each, the same in every figure and on the page.

The colours are Okabe and Ito's, which people with any common colour vision tell apart, darkened or
lightened where the contrast to paper or to a dark page asks for it. Dashes repeat the distinction
for those who print in grey.
"""

from dataclasses import dataclass

from fedhaw.reports.comparison import Comparison


@dataclass(frozen=True)
class Style:
    """The look of one rule.

    Attributes:
        light: its colour on white.
        dark: its colour on a dark page.
        dash: lengths of strokes and gaps in points; empty for a solid line.
    """

    light: str
    dark: str
    dash: tuple[float, ...] = ()


OF_RULE = {
    "fedavg": Style("#4a4a4a", "#c9c9c9", (5, 2)),
    "fedadp": Style("#a86b00", "#f0b43c", (2, 1.5)),
    "fedhyper": Style("#b0518a", "#e59cc6", (7, 2, 1.5, 2)),
    "fedlws": Style("#00795a", "#3fc9a0", (4, 1.5, 1, 1.5)),
    "fedlaw": Style("#0067a5", "#5fb4ee", (9, 2)),
    "fedhaw": Style("#cc4400", "#ff8a50"),
}

FURTHER = (
    Style("#6a4fb3", "#b09cf0", (3, 3)),
    Style("#007a87", "#4fd0dc", (6, 2, 2, 2)),
    Style("#8c2d19", "#f08a76", (1, 2)),
    Style("#5b6f00", "#b8d13a", (8, 3)),
    Style("#a3266e", "#f27fbb", (4, 4)),
    Style("#2f4b7c", "#8fb0e8", (2, 3, 6, 3)),
)
"""For further rules, and for the second and later group of one rule."""


def styles(comparison: Comparison) -> dict[str, Style]:
    """A look for every label; a known rule keeps its own, whatever else is shown."""
    chosen: dict[str, Style] = {}
    taken: set[str] = set()
    for group in comparison.groups:
        if group.rule in OF_RULE and group.rule not in taken:
            chosen[group.label] = OF_RULE[group.rule]
            taken.add(group.rule)
    others = [group.label for group in comparison.groups if group.label not in chosen]
    unused = [style for rule, style in OF_RULE.items() if rule not in taken]
    pool = (*FURTHER, *unused)
    chosen.update({label: pool[index % len(pool)] for index, label in enumerate(others)})
    return chosen

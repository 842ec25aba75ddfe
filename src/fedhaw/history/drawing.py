"""A history as a small picture for a notebook: a curve, who was lost, and what the run is.

Plain SVG in the text's own colour, so that it needs no drawing library and suits a dark page.
"""

from html import escape
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fedhaw.history.history import History, Vector

WIDTH, HEIGHT, LEFT, GROUND = 560.0, 170.0, 44.0, 140.0
MOST_POINTS = 400  # more would not be seen


def to_html(history: "History") -> str:
    """The picture, with a line of text above it."""
    settings = {"rule": history.rule, "seed": history.seed}
    shown = ("data", "clients", "alpha", "rounds")
    config = history.run.config
    settings |= {
        name: config[name] for name in shown if isinstance(config.get(name), str | int | float)
    }
    facts = ", ".join(f"{name} {value}" for name, value in settings.items())
    state = f"{len(history.records)} rounds, {'finished' if history.finished else 'not finished'}"
    head = f"<b>{escape(history.name)}</b>: {state}; {escape(facts)}"
    return f'<div class="fedhaw-history"><p>{head}</p>{_picture(history)}</div>'


def _picture(history: "History") -> str:
    name, values = _curve(history)
    known = np.flatnonzero(np.isfinite(values))
    if not len(known):
        return ""
    known = known[np.unique(np.linspace(0, len(known) - 1, MOST_POINTS).astype(int))]
    low, high = float(values[known].min()), float(values[known].max())
    if name == "accuracy":
        low, high = 0.0, 1.0
    last = max(len(values) - 1, 1)
    x = LEFT + (WIDTH - LEFT - 60) * known / last
    y = GROUND - (GROUND - 14) * (values[known] - low) / ((high - low) or 1.0)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    lost = history.lost[known] / max(int(history.lost.max(initial=0)), 1)
    bars = "".join(
        f'<rect x="{a - 1:.1f}" y="{GROUND + 4}" width="2" height="{14 * share:.1f}"/>'
        for a, share in zip(x, lost, strict=True)
        if share
    )
    text = 'fill="currentColor" font-size="11" font-family="sans-serif"'
    end = f"{values[known[-1]]:.3f}"
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" width="100%" style="max-width:{WIDTH:g}px" '
        f'role="img" aria-label="{escape(name)} after each round, at the end {end}">'
        f'<path d="M{LEFT:g} 14V{GROUND:g}H{WIDTH - 60:g}" fill="none" stroke="currentColor" '
        'opacity=".4"/>'
        f'<polyline points="{points}" fill="none" stroke="#d9600c" stroke-width="2"/>'
        f'<g fill="#1f77b4">{bars}</g>'
        f'<g {text}><text x="{LEFT - 6:g}" y="20" text-anchor="end">{high:.3g}</text>'
        f'<text x="{LEFT - 6:g}" y="{GROUND:g}" text-anchor="end">{low:.3g}</text>'
        f'<text x="{x[-1] + 6:.1f}" y="{y[-1] + 4:.1f}">{end}</text>'
        f'<text x="{LEFT:g}" y="{HEIGHT - 2:g}">{escape(name)} by round'
        f"{'; below it, uploads lost' if bars else ''}</text></g></svg>"
    )


def _curve(history: "History") -> tuple[str, "Vector"]:
    """What is drawn: accuracy, or whatever was measured first."""
    measured = history.evaluation
    name = "accuracy" if "accuracy" in measured else next(iter(measured), "accuracy")
    return name, measured.get(name, np.zeros(0))

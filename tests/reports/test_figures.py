"""Figures: what is drawn is what was measured, and files are fit for print."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedhaw.reports import Report, load
from fedhaw.reports.figures import draw_accuracy, draw_all, draw_learnt, draw_split, draw_weights
from fedhaw.reports.metrics import ACCURACY, LOST
from fedhaw.reports.styles import OF_RULE, styles

Writer = Callable[..., Path]


def test_the_accuracy_figure_shows_the_means_and_the_losses(sweep: Path) -> None:
    comparison = load([sweep])
    figure = draw_accuracy(comparison)
    assert figure is not None
    upper, lower = figure.axes
    drawn = {str(line.get_label()): line for line in upper.get_lines()}
    assert list(drawn) == [group.label for group in comparison.groups]
    for group in comparison.groups:
        mean, _ = group.per_round(ACCURACY)
        np.testing.assert_allclose(drawn[group.label].get_ydata(), mean * 100)  # type: ignore[arg-type]
    heights = [bar.get_height() for bar in lower.patches]  # type: ignore[attr-defined]
    np.testing.assert_allclose(heights, comparison.groups[0].per_round(LOST)[0])
    assert len(upper.collections) == len(comparison.groups)  # one band each


def test_without_losses_there_is_no_lower_panel(tmp_path: Path, write_history: Writer) -> None:
    write_history(tmp_path, rounds=3, loss_rate=0.0)
    figure = draw_accuracy(load([tmp_path]))
    assert figure is not None
    assert len(figure.axes) == 1
    assert len(figure.axes[0].collections) == 0  # one seed, no band


def test_each_rule_keeps_its_colour_whatever_else_is_shown(sweep: Path) -> None:
    everything, alone = load([sweep]), load([sweep / "fedlaw"])
    assert styles(everything)["FedLAW"] == styles(alone)["FedLAW"] == OF_RULE["fedlaw"]
    look = styles(everything).values()
    assert len({style.light for style in look}) == len({style.dark for style in look}) == 6


def test_a_second_group_of_one_rule_gets_another_colour(
    tmp_path: Path, write_history: Writer
) -> None:
    for alpha in (0.1, 1.0):
        write_history(tmp_path / str(alpha), rounds=2, config={"alpha": alpha})
    first, second = styles(load([tmp_path])).values()
    assert first.light != second.light


def test_the_weights_figure_has_a_panel_a_rule_and_a_line_a_client(sweep: Path) -> None:
    figure = draw_weights(load([sweep]))
    assert figure is not None
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in panels][-1] == "FedHAW"
    assert [len(axes.get_lines()) for axes in panels] == [10] * 6
    top = panels[0].get_ylim()[1]
    lines = [line for axes in panels for line in axes.get_lines()]
    assert all(np.max(np.asarray(line.get_ydata(), dtype=float)) <= top for line in lines)


def test_gamma_has_one_panel_for_scalars_and_one_for_layers(sweep: Path) -> None:
    figure = draw_learnt(load([sweep]), "gamma")
    assert figure is not None
    scalars, layers = figure.axes
    named = [str(line.get_label()) for line in scalars.get_lines()]
    assert named[:2] == ["FedLAW", "FedHAW"]
    assert len(layers.get_lines()) == 3


def test_long_names_leave_the_axes_their_room(tmp_path: Path, write_history: Writer) -> None:
    """Four of them side by side had squeezed the lines into a fifth of the width."""
    for number in range(4):
        name = f"FedHAW with a name that says {number} all that there is"
        write_history(tmp_path / str(number), "fedhaw", rounds=5, name=name)
    figure = draw_learnt(load([tmp_path]), "gamma")
    assert figure is not None
    figure.draw_without_rendering()
    box = figure.axes[0].get_position()
    assert box.width > 0.7
    assert box.height > 0.4


def test_what_was_not_recorded_is_not_drawn(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text(
        '{"kind": "run", "format": 1, "name": "x"}\n{"kind": "round", "round": 0}\n'
    )
    comparison = load([tmp_path])
    assert draw_all(comparison) == ()
    assert draw_split(comparison) is None


def test_files_are_fit_for_print(report: Report) -> None:
    names = {path.name for path in report.paths if path.parent.name == "figures"}
    assert names == {
        f"{name}.{kind}"
        for name in ("accuracy", "weights", "gamma", "holdings")
        for kind in ("png", "pdf")
    }
    for path in report.paths:
        content = path.read_bytes()
        if path.suffix == ".pdf":
            assert b"/FontFile2" in content  # the font is inside
            assert b"/Type3" not in content
        if path.suffix == ".png":
            assert content.startswith(b"\x89PNG")
            assert b"pHYs\x00\x00\x1e\xc2" in content  # 7874 dots a metre: 200 an inch


def test_the_same_histories_give_the_same_bytes_and_a_notice_shows(sweep: Path) -> None:
    comparison = load([sweep / "fedhaw" / "seed-0"])
    plain = draw_all(comparison)
    assert plain == draw_all(comparison)
    marked = draw_all(comparison, notice="Reduced scale")
    for without, with_notice in zip(plain, marked, strict=True):
        assert without.png != with_notice.png


@pytest.mark.parametrize("rounds", [1, 2])
def test_very_short_runs_can_be_drawn(tmp_path: Path, write_history: Writer, rounds: int) -> None:
    write_history(tmp_path, rounds=rounds)
    assert len(draw_all(load([tmp_path]))) == 4


def test_a_script_that_the_font_lacks_is_no_warning(tmp_path: Path, write_history: Writer) -> None:
    write_history(tmp_path, rounds=2)
    assert draw_all(load([tmp_path]), notice="\u6570\u5b57")  # warnings are errors here


def test_no_global_state_of_pyplot_is_used(sweep: Path) -> None:
    program = (
        "import sys; from fedhaw.reports import load; import matplotlib\n"
        "from fedhaw.reports.figures import draw_all, MATPLOTLIB\n"
        "before = [matplotlib.rcParams[key] for key in MATPLOTLIB]\n"
        f"assert draw_all(load([{str(sweep / 'fedhaw' / 'seed-0')!r}]))\n"
        "assert [matplotlib.rcParams[key] for key in MATPLOTLIB] == before\n"
        "assert 'matplotlib.pyplot' not in sys.modules and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)

from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import EllipseCollection
from matplotlib.figure import Figure

from fedhaw.reports.holdings import HoldingsError, draw_holdings

COUNTS = np.array([[4, 0, 1], [0, 16, 0]])


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_picture_is_written(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"holdings.{ending}"
    draw_holdings(COUNTS, path)
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    assert path.read_bytes().startswith(starts[ending])
    assert list(tmp_path.iterdir()) == [path]


def test_areas_stand_for_counts() -> None:
    axes = Figure().add_subplot()
    draw_holdings(COUNTS, axes, title="who")
    (dots,) = (c for c in axes.collections if isinstance(c, EllipseCollection))
    np.testing.assert_array_equal(dots.get_offsets(), [[0, 0], [2, 0], [1, 1]])
    np.testing.assert_allclose(np.asarray(dots.get_widths()) ** 2 * 16, [4, 1, 16])
    assert axes.get_title() == "who"
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # client 0 on top


def test_many_clients_fit(tmp_path: Path) -> None:
    draw_holdings(np.ones((500, 10), dtype=int), tmp_path / "many.png")


@pytest.mark.parametrize("counts", [[1, 2], [[0.5]], [[-1]], np.zeros((0, 3), dtype=int)])
def test_what_is_no_table_is_refused(tmp_path: Path, counts: object) -> None:
    with pytest.raises(HoldingsError, match="cannot be drawn"):
        draw_holdings(counts, tmp_path / "no.png")  # type: ignore[arg-type]

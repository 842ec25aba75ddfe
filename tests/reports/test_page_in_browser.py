"""The page as a reader meets it, in headless Chromium."""

import base64
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedhaw.history import ClientFacts, History, RoundRecord, RunRecord
from fedhaw.reports import Report, compare, comparison_table, write_report
from fedhaw.reports.page import to_page

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
WebDriverWait = pytest.importorskip("selenium.webdriver.support.ui").WebDriverWait

pytestmark = pytest.mark.system

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>"

Open = Callable[..., Any]


@pytest.fixture
def open_page(browser: Any) -> Open:
    """Open a page in a window of some width and with some preference of colours."""

    def opened(page: Path, width: int = 1280, height: int = 900, dark: bool = False) -> Any:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        colours = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [colours]})
        browser.get(page.as_uri())
        # The script sets this when everything is drawn, a moment after the page has loaded.
        ready = "return document.documentElement.dataset.ready"
        WebDriverWait(browser, 30).until(lambda it: it.execute_script(ready) == "yes")
        assert browser.get_log("browser") == []
        return browser

    return opened


def lines(browser: Any, plot: str = "plot-rounds") -> dict[str, list[float]]:
    """The drawn curves of a plot by label: only those with a path on the canvas count."""
    drawn: dict[str, list[float]] = browser.execute_script(
        """const box = document.getElementById(arguments[0]);
        const path = ({series}) => {
          const paths = box.plot.series[series]._paths;
          return paths?.stroke ?? paths?.fill;
        };
        return Object.fromEntries(
          box.said.lines.filter(path).map((line) => [line.label, line.values]));""",
        plot,
    )
    return drawn


def colours(browser: Any, plot: str) -> int:
    """How many colours are on the canvas of a plot; a blank one has one."""
    count: int = browser.execute_script(
        """const canvas = document.querySelector(arguments[0] + ' canvas');
        const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        return new Set(new Uint32Array(pixels.data.buffer)).size""",
        plot,
    )
    return count


def press(browser: Any, selector: str) -> None:
    browser.execute_script("document.querySelector(arguments[0]).click()", selector)


def choose(browser: Any, control: str, text: str) -> None:
    browser.execute_script(
        """const select = document.getElementById(arguments[0]);
        select.value = [...select.options].find((o) => o.text === arguments[1]).value;
        select.dispatchEvent(new Event('change'));""",
        control,
        text,
    )


def hover(browser: Any, plot: str, across: float, down: float = 0.5) -> str:
    """The words beside a pointer that stands so far across a plot."""
    element = browser.find_element("css selector", f"#{plot} .u-over")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    size = element.size
    webdriver.ActionChains(browser, duration=50).move_to_element_with_offset(
        element, (across - 0.5) * size["width"], (down - 0.5) * size["height"]
    ).perform()
    words: str = browser.execute_script(
        "return document.querySelector(arguments[0]).innerText", f"#{plot} > .tip"
    )
    return words


LABELS = ["FedAvg", "FedAdp", "FedHyper", "FedLWS", "FedLAW", "FedHAW"]


def test_the_plots_draw_what_the_table_says(report: Report, open_page: Open) -> None:
    browser = open_page(report.page)
    curves = lines(browser)
    assert sorted(curves) == sorted(LABELS)
    for row in report.table.cells:
        assert f"{curves[row[0].mean][-1]:.2f}" == row[1].mean
    assert [len(bars) for bars in lines(browser, "plot-lost").values()] == [60]
    for panel in range(6):
        drawn = browser.execute_script(
            f"return document.getElementById('clients-0-{panel}').said.lines.length"
        )
        assert drawn == 10
        assert lines(browser, f"clients-0-{panel}")
    for plot in ("#plot-rounds", "#plot-lost", "#clients-0-1", "#plot-holdings"):
        assert colours(browser, plot) > 20
    assert "Reduced scale" in browser.execute_script(
        "return document.querySelector('.notice').innerText"
    )


def test_the_pointer_reads_what_the_table_says(report: Report, open_page: Open) -> None:
    browser = open_page(report.page)
    words = hover(browser, "plot-rounds", 0.985)
    assert words.startswith("Round 60")
    for row in report.table.cells:
        assert row[1].text in words
    assert "% of the data" in hover(browser, "clients-0-1", 0.5, 0.3)
    choose(browser, "metric", "gamma")
    last = next(row for row in report.table.cells if row[0].mean == "FedHAW")
    place = [column.title for column in report.table.columns].index("Final gamma")
    assert last[place].text in hover(browser, "plot-rounds", 0.985)


def test_hiding_a_rule_hides_it_everywhere_and_comes_back(report: Report, open_page: Open) -> None:
    browser = open_page(report.page)
    hidden = """return [
        document.querySelector('#rules [data-label=FedAvg]').getAttribute('aria-pressed'),
        document.querySelector('tbody [data-label=FedAvg]').offsetParent === null,
        document.querySelector('#clients [data-label=FedAvg]').offsetParent === null]"""
    assert browser.execute_script(hidden) == ["true", False, False]
    press(browser, "#rules [data-label=FedAvg]")
    assert "FedAvg" not in lines(browser)
    assert len(lines(browser)) == 5
    assert browser.execute_script(hidden) == ["false", True, True]
    press(browser, "#all")
    assert len(lines(browser)) == 6
    assert browser.execute_script(hidden) == ["true", False, False]


def test_every_panel_of_weights_is_as_wide_as_its_place(report: Report, open_page: Open) -> None:
    browser = open_page(report.page)
    # Sizes are told to observers after a frame is laid out; two frames later they are known.
    misfits = """const done = arguments[0];
        requestAnimationFrame(() => requestAnimationFrame(() => done(
          [...document.querySelectorAll('#clients .plot')]
            .filter((box) => box.offsetParent !== null)
            .map((box) => Math.abs(box.plot.width - box.clientWidth))
            .filter((difference) => difference > 1))))"""
    assert browser.execute_async_script(misfits) == []
    for label in LABELS[:4]:  # the two that are left share the row
        press(browser, f"#rules [data-label={label}]")
    assert browser.execute_async_script(misfits) == []
    press(browser, "#all")
    assert browser.execute_async_script(misfits) == []


def test_hiding_every_rule_leaves_an_empty_plot(report: Report, open_page: Open) -> None:
    browser = open_page(report.page)
    for label in LABELS:
        press(browser, f"#rules [data-label={label}]")
    assert lines(browser) == {}
    assert browser.get_log("browser") == []


def test_switching_the_metric_changes_the_curves(report: Report, open_page: Open) -> None:
    browser = open_page(report.page)
    accuracy = lines(browser)
    choose(browser, "metric", "Test loss")
    loss = lines(browser)
    assert sorted(loss) == sorted(accuracy)
    assert loss["FedHAW"] != accuracy["FedHAW"]
    choose(browser, "metric", "gamma")
    assert sorted(lines(browser)) == ["FedHAW", "FedLAW"]
    note = browser.execute_script("return document.getElementById('rounds-note').innerText")
    assert "Not recorded for FedAvg, FedAdp, FedHyper, FedLWS." in note
    titles = browser.execute_script(
        "return [...document.getElementById('metric').options].map((o) => o.text)"
    )
    for title in titles:
        choose(browser, "metric", title)
        assert lines(browser)
    assert browser.get_log("browser") == []


def test_each_seed_can_be_shown(report: Report, open_page: Open) -> None:
    browser = open_page(report.page)
    choose(browser, "seeds", "each seed")
    assert len(lines(browser)) == 6 * 3


def test_light_and_dark_follow_the_system_and_the_button(report: Report, open_page: Open) -> None:
    look = """return [getComputedStyle(document.body).backgroundColor,
        document.getElementById('plot-rounds').said.lines.at(-1).colour,
        document.getElementById('theme').innerText]"""
    light = open_page(report.page).execute_script(look)
    browser = open_page(report.page, dark=True)
    dark = browser.execute_script(look)
    assert all(one != other for one, other in zip(light, dark, strict=True))
    press(browser, "#theme")
    assert browser.execute_script(look) == light


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_hangs_out_of_the_window(report: Report, open_page: Open, width: int) -> None:
    browser = open_page(report.page, width=width, height=740)
    measured = browser.execute_script(
        """return [document.documentElement.scrollWidth, window.innerWidth,
        [...document.querySelectorAll('.card, .tiles li, .top, .notice, footer, .plot canvas')]
          .filter((e) => e.getBoundingClientRect().right > window.innerWidth + 1).length]"""
    )
    assert measured == [width, width, 0]
    assert len(lines(browser)) == 6


CONTRAST = """
const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
const light = (c) => c.slice(0, 3).map((v) => v / 255)
  .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (e) => {
  for (let at = e; at; at = at.parentElement) {
    const c = rgb(getComputedStyle(at).backgroundColor);
    if (c.length === 3 || c[3] > 0) return c;
  }
  return [255, 255, 255];
};
const poor = [];
for (const e of document.querySelectorAll('h1,h2,h3,p,td,th,button,label,select,dt,dd,a,li span')) {
  if (!e.innerText || !e.offsetParent) continue;
  const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
  if ((a + 0.05) / (b + 0.05) < 4.5) poor.push(e.tagName + ': ' + e.innerText.slice(0, 30));
}
const unnamed = [...document.querySelectorAll('button, select, [role=img], [role=region]')]
  .filter((e) => !(e.innerText.trim() || e.ariaLabel || (e.labels && e.labels.length)
    || e.getAttribute('aria-labelledby'))).map((e) => e.outerHTML.slice(0, 80));
return [poor, unnamed];
"""


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_contrast_and_controls_have_names(
    report: Report, open_page: Open, dark: bool
) -> None:
    poor, unnamed = open_page(report.page, dark=dark).execute_script(CONTRAST)
    assert poor == []
    assert unnamed == []


def test_the_table_sorts_by_any_column(report: Report, open_page: Open) -> None:
    browser = open_page(report.page)
    names = "return [...document.querySelectorAll('tbody tr')].map((row) => row.dataset.label)"
    press(browser, "thead th:nth-child(2) button")
    press(browser, "thead th:nth-child(2) button")
    finals = {row[0].mean: row[1].value for row in report.table.cells}
    assert browser.execute_script(names) == sorted(finals, key=finals.__getitem__, reverse=True)


def test_hostile_names_do_nothing(
    tmp_path: Path, write_history: Callable[..., Path], open_page: Open
) -> None:
    for seed in range(2):
        write_history(
            tmp_path / "runs" / str(seed), seed=seed, rounds=3, name=HOSTILE, fedhaw=HOSTILE,
            config={"data": HOSTILE, HOSTILE: HOSTILE},
            clients={HOSTILE: {"examples": 3, "labels": [1, 2]}},
        )  # fmt: skip
    written = write_report([tmp_path / "runs"], tmp_path / "out", title=HOSTILE, notice=HOSTILE)
    browser = open_page(written.page)
    assert browser.execute_script("return window.hacked") is None
    assert browser.execute_script("return document.images.length") == 0
    assert browser.title == HOSTILE
    shown = "return document.querySelector('#rules [data-label] span').textContent"
    assert browser.execute_script(shown) == HOSTILE
    choose(browser, "seeds", "each seed")
    assert browser.execute_script("return window.hacked") is None
    assert browser.get_log("browser") == []


def test_ten_thousand_rounds_of_a_hundred_clients_open_at_once(
    tmp_path: Path, open_page: Open
) -> None:
    clients = [str(k) for k in range(100)]
    facts = {client: ClientFacts(k + 1) for k, client in enumerate(clients)}
    weights = {client: (k + 1) / 5050 for k, client in enumerate(clients)}
    records = [
        RoundRecord(t, {"accuracy": 0.1 if t == 7003 else 0.9}, weights=weights)
        for t in range(10_000)
    ]
    history = History(RunRecord("fedavg", {"name": "fedavg"}, clients=facts), records, True)
    comparison = compare([history])
    page = tmp_path / "report.html"
    page.write_text(to_page(comparison, comparison_table(comparison), "Long"))
    browser = open_page(page)
    opened = "return performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
    assert browser.execute_script(opened) < 3000
    assert min(lines(browser)["FedAvg"]) == 10  # the one round that went wrong is there
    note = browser.execute_script("return document.getElementById('rounds-note').innerText")
    assert "Drawn are about 800 of 10,000 rounds" in note


@pytest.mark.parametrize(
    ("width", "dark"), [(1280, False), (1280, True), (360, False), (360, True)]
)
def test_screenshots(
    report: Report, open_page: Open, tmp_path: Path, width: int, dark: bool
) -> None:
    """As wide and as dark as asked for; kept where FEDHAW_SCREENSHOTS says, to be looked at."""
    folder = Path(os.environ.get("FEDHAW_SCREENSHOTS", tmp_path))
    browser = open_page(report.page, width=width, dark=dark)
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{'phone' if width < 600 else 'desktop'}-{'dark' if dark else 'light'}.png"
    (folder / name).write_bytes(base64.b64decode(shot["data"]))
    with Image.open(folder / name) as image:
        assert image.width == width
        assert (np.asarray(image.convert("L")).mean() < 128) == dark

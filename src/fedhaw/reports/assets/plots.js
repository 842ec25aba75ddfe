"use strict";
// Curves and a table of areas, drawn on canvas; what they mean is told by page.js.
const Plots = (() => {
  const root = document.documentElement;
  const narrow = window.matchMedia("(max-width: 40rem)");
  const shade = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const FONT = "12px system-ui, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif";
  const STEPS = [1, 2, 5].flatMap((first, at) => [...Array(9).keys()].map((power) => [power, at, first * 10 ** power]))
    .sort((a, b) => a[0] - b[0] || a[1] - b[1]).map((step) => step[2]);

  function element(tag, text, attributes = {}) {
    const made = document.createElement(tag);
    if (text) made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  }

  // A number as the tables write it: so many decimals, or so many significant digits.
  function written(value, notation) {
    let decimals = notation.decimals;
    if (decimals === null) {
      const magnitude = value ? Math.floor(Math.log10(Math.abs(value))) : 0;
      decimals = value ? Math.max(notation.significant - 1 - magnitude, 0) : 0;
    }
    const text = value.toFixed(Math.min(decimals, 9));
    return Number(text) === 0 ? text.replace("-", "") : text;
  }

  // The words beside the pointer, inside the plot's own box.
  function tip(box) {
    let shown = box.querySelector(":scope > .tip");
    if (!shown) box.append((shown = element("div", "", { class: "tip", "aria-hidden": "true" })));
    return {
      hide: () => { shown.hidden = true; },
      show: (title, rows, left, top) => {
        shown.hidden = false;
        shown.replaceChildren(element("strong", title), ...rows.map(([colour, label, text]) => {
          const row = element("span", "");
          if (colour) row.append(Object.assign(element("i", ""), { style: `background:${colour}` }));
          row.append(element("span", label), element("b", text));
          return row;
        }));
        const room = box.clientWidth - shown.offsetWidth;
        const beside = left + 14 > room ? left - 14 - shown.offsetWidth : left + 14;
        shown.style.left = `${Math.max(0, Math.min(beside, room))}px`;
        shown.style.top = `${Math.max(0, Math.min(top, box.clientHeight - shown.offsetHeight))}px`;
      },
    };
  }

  // For one line only: the one that is nearest to the pointer.
  function nearest(u, lines, at) {
    let best = null;
    lines.forEach((line) => {
      const value = u.data[line.series][at];
      if (value == null) return;
      const distance = Math.abs(u.valToPos(value, "y") - u.cursor.top);
      if (!best || distance < best[0]) best = [distance, line];
    });
    return best ? [best[1]] : [];
  }

  /* Draw curves into a box, over what is there.
   *   rounds: where on the axis; lines: [{label, values, colour, dash, width, low, high, bars, steps}];
   *   heading, log, top: of the upright axis; last: the last round of all; one: words for one line
   *   only; said(line, at): those words; sync: plots whose pointers move together; quiet: no title. */
  function curves(box, chart) {
    const padded = (values) => chart.rounds.map((_, at) => values[at] ?? null);
    const data = [chart.rounds], series = [{}], bands = [];
    const only = chart.rounds.length === 1;
    for (const line of chart.lines) {
      line.series = data.length;
      data.push(padded(line.values));
      series.push({
        stroke: line.colour, width: line.bars ? 0 : line.width, dash: line.dash, spanGaps: true, fill: line.fill,
        points: { show: only && !line.bars, size: 6, fill: line.colour },
        ...(line.bars ? { paths: uPlot.paths.bars({ size: [0.75, 40] }) } : {}),
        ...(line.steps ? { paths: uPlot.paths.stepped({ align: 1 }) } : {}),
      });
      if (!line.low) continue;
      bands.push({ series: [data.length, data.length + 1], fill: line.shadow });
      for (const edge of [line.high, line.low]) {
        data.push(padded(edge));
        series.push({ width: 0, spanGaps: true, points: { show: false } });
      }
    }
    const signature = JSON.stringify([series.map((s) => [s.stroke, s.dash, s.width]), bands, chart.log, chart.heading, chart.quiet, shade("--ink"), narrow.matches]);
    const full = () => [0, box.said.last + Math.max(0.6, box.said.last / 100)];
    if (box.plot && box.signature === signature) {
      const { min, max } = box.plot.scales.x;
      const zoomed = min > 0 || max < full()[1];
      box.said = chart;
      box.plot.setData(data, !zoomed);
      if (zoomed) box.plot.redraw();
      return;
    }
    box.plot?.destroy();
    const axis = { stroke: shade("--ink"), font: FONT, labelFont: FONT, labelSize: 18, grid: { stroke: shade("--grid"), width: 1 }, ticks: { stroke: shade("--grid"), width: 1, size: 4 }, gap: 4 };
    const words = tip(box);
    words.hide();
    box.said = chart;
    box.signature = signature;
    box.plot = new uPlot({
      width: box.clientWidth, height: box.clientHeight, padding: [8, 22, 0, 0], series, bands,
      legend: { show: false },
      cursor: {
        // On a phone a finger scrolls the page, not the plot.
        drag: { x: !narrow.matches, y: false, dist: 5 }, y: false, points: { show: !chart.one, size: 6 },
        ...(chart.sync ? { sync: { key: chart.sync, scales: ["x", null] } } : {}),
      },
      scales: {
        x: { time: false, range: (u, low, high) => (low <= u.data[0][0] && high >= u.data[0].at(-1) ? full() : [low, high]) },
        y: chart.log ? { distr: 3 } : { range: (u, low, high) => limits(low, high, box.said) },
      },
      axes: [
        { ...axis, incrs: STEPS, size: 26, space: 60, ...(chart.quiet ? {} : { label: "Communication round" }) },
        { ...axis, label: chart.heading, space: 34, size: (u, values) => 16 + 6.5 * Math.max(chart.sync ? 5 : 3, ...(values ?? []).map((v) => (v ?? "").length)) },
      ],
      hooks: {
        setCursor: [(u) => {
          const at = u.cursor.idx;
          if (at == null || u.cursor.left < 0) { words.hide(); return; }
          const { lines, rounds, said, one } = box.said;
          const here = one ? nearest(u, lines, at) : lines.filter((line) => u.data[line.series][at] != null);
          const rows = here.map((line) => [line.colour, line.label, said(line, at)]);
          const edge = u.over.getBoundingClientRect().left - box.getBoundingClientRect().left;
          if (rows.length && u.over.matches(":hover")) words.show(`Round ${rounds[at]}`, rows, edge + u.cursor.left, 8);
          else words.hide();
        }],
      },
    }, data, box);
  }

  function limits(low, high, chart) {
    if (chart.top != null) return [0, chart.top || 1];
    if (low == null) return [0, 1];
    if (low === high) return [low - (Math.abs(low) / 10 || 1), high + (Math.abs(high) / 10 || 1)];
    if (chart.floor) return [0, high * 1.05];
    return uPlot.rangeNum(low, high, 0.06, false);
  }

  /* Draw a table of counts as tinted areas: rows and columns by name, counts[row][column]. */
  function areas(box, { rows, columns, counts, across, down, said }) {
    const canvas = box.querySelector("canvas") ?? element("canvas", "");
    if (!canvas.parentElement) box.append(canvas);
    const [width, height] = [box.clientWidth, box.clientHeight];
    const sharp = window.devicePixelRatio || 1;
    canvas.width = width * sharp;
    canvas.height = height * sharp;
    canvas.style.width = `${width}px`;
    const pen = canvas.getContext("2d");
    pen.scale(sharp, sharp);
    pen.font = FONT;
    pen.textBaseline = "middle";
    const left = 28 + Math.min(120, Math.max(...rows.map((name) => pen.measureText(name).width)));
    const [cell, line] = [(width - left - 4) / columns.length, (height - 44) / rows.length];
    const largest = Math.max(1, ...counts.flat());
    const few = cell >= 26 && line >= 15;
    counts.forEach((row, r) => row.forEach((count, c) => {
      if (!count) return;
      pen.globalAlpha = Math.sqrt(count / largest);
      pen.fillStyle = shade("--heat");
      pen.fillRect(left + c * cell + 1, r * line + 1, Math.max(cell - 2, 0.5), Math.max(line - 2, 0.5));
      pen.globalAlpha = 1;
      pen.fillStyle = shade("--ink");
      pen.textAlign = "center";
      if (few) pen.fillText(String(count), left + (c + 0.5) * cell, (r + 0.5) * line, cell - 2);
    }));
    pen.fillStyle = shade("--ink");
    pen.textAlign = "right";
    const every = (space, names) => Math.ceil(space / (names === rows ? line : cell));
    rows.forEach((name, r) => r % every(13, rows) || pen.fillText(name, left - 6, (r + 0.5) * line, left - 22));
    pen.textAlign = "center";
    columns.forEach((name, c) => c % every(24, columns) || pen.fillText(name, left + (c + 0.5) * cell, height - 34));
    pen.fillText(across, left + (width - left) / 2, height - 12);
    pen.rotate(-Math.PI / 2);
    pen.fillText(down, -(height - 44) / 2, 9);
    const words = tip(box);
    words.hide();
    box.onmouseleave = words.hide;
    box.onmousemove = (event) => {
      const edge = canvas.getBoundingClientRect();
      const [x, y] = [event.clientX - edge.left, event.clientY - edge.top];
      const [c, r] = [Math.floor((x - left) / cell), Math.floor(y / line)];
      if (counts[r]?.[c] === undefined) words.hide();
      else words.show(said(r, c), [], x, y);
    };
  }

  // Plots take the width of their box, also when it changes.
  const sizes = new ResizeObserver((changes) => changes.forEach(({ target }) => {
    if (target.plot && target.clientWidth) target.plot.setSize({ width: target.clientWidth, height: target.clientHeight });
    target.redraw?.();
  }));
  const box = (id, attributes = {}) => {
    const made = element("div", "", { id, class: "plot", role: "img", ...attributes });
    sizes.observe(made);
    return made;
  };
  const watch = (made) => sizes.observe(made);

  return { areas, box, curves, element, narrow, shade, watch, written };
})();

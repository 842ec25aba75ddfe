"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const root = document.documentElement;
  const systemDark = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 40rem)");
  const state = { hidden: new Set(), metric: 0, each: false, theme: null };

  // Plotly reads a little HTML in its texts; names come from files and are shown as they are.
  const plain = (text) =>
    String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const isDark = () => (state.theme ?? (systemDark.matches ? "dark" : "light")) === "dark";
  const shade = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const colour = (rule) => (isDark() ? rule.dark : rule.light);
  const shown = () => data.rules.map((_, index) => index).filter((i) => !state.hidden.has(i));
  const translucent = (hex, alpha) =>
    `rgba(${[1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)).join(",")},${alpha})`;

  function element(tag, text, attributes = {}) {
    const made = document.createElement(tag);
    if (text) made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  }

  function layout(extra) {
    const axis = {
      gridcolor: shade("--grid"), linecolor: shade("--line"), zeroline: false, automargin: true,
      fixedrange: narrow.matches, // on a phone a finger scrolls the page, not the plot
    };
    return {
      font: { family: "system-ui, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif", size: 12.5, color: shade("--ink") },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
      margin: { l: 8, r: 10, t: 12, b: 8 }, autosize: true,
      modebar: { bgcolor: "rgba(0,0,0,0)", color: shade("--quiet"), activecolor: shade("--accent") }, dragmode: narrow.matches ? false : "zoom",
      hoverlabel: { bgcolor: shade("--card"), bordercolor: shade("--line"), font: { color: shade("--ink"), size: 12.5 }, align: "left", namelength: -1 },
      ...extra,
      xaxis: { ...axis, ...extra.xaxis }, yaxis: { ...axis, ...extra.yaxis },
      ...(extra.yaxis2 ? { yaxis2: { ...axis, ...extra.yaxis2 } } : {}),
    };
  }
  const config = () => ({
    displaylogo: false, responsive: true, displayModeBar: narrow.matches ? false : "hover",
    // Named one by one: Plotly's own choice has a button that uploads the data.
    modeBarButtons: [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]],
  });

  function roundTraces(metric) {
    const traces = [];
    for (const index of shown()) {
      const rule = data.rules[index];
      const series = metric.series[index];
      if (!series) continue;
      const line = { color: colour(rule), width: rule.rule === "fedhaw" ? 3 : 2, dash: rule.dash };
      const common = { x: rule.rounds, mode: rule.rounds.length > 1 ? "lines" : "markers", name: plain(rule.label), legendgroup: rule.label, meta: rule.label, connectgaps: true };
      if (state.each) {
        series.seeds.forEach((values, at) => traces.push({
          ...common, y: values, line: { ...line, width: 1.5 }, opacity: 0.85,
          hovertemplate: `%{y:.5~g} (seed ${plain(rule.seeds[at])})`,
        }));
        continue;
      }
      if (series.spread) {
        const { x, y } = band(rule.rounds, series, metric.log);
        traces.push({ x, y, mode: "lines", fill: "toself", fillcolor: translucent(colour(rule), 0.15), line: { width: 0 }, hoverinfo: "skip", meta: rule.label, name: plain(rule.label) });
      }
      traces.push({ ...common, y: series.mean, line, text: series.text, hovertemplate: "%{text}" });
    }
    return traces;
  }

  // One closed outline: up along mean + spread, back along mean - spread.
  function band(rounds, series, log) {
    const at = rounds.map((_, i) => i).filter((i) => series.mean[i] !== null);
    // A logarithmic axis has no place for zero: there the band ends at a tenth of the mean.
    const kept = (value, mean) => (log ? Math.max(value, mean / 10) : value);
    const edge = (sign) => at.map((i) => kept(series.mean[i] + sign * (series.spread[i] ?? 0), series.mean[i]));
    const there = at.map((i) => rounds[i]);
    return { x: [...there, ...there.slice().reverse()], y: [...edge(1), ...edge(-1).reverse()] };
  }

  function lostTraces() {
    const visible = shown().filter((index) => data.lost[index]);
    const trace = (index, extra) => ({ x: data.rules[index].rounds, y: data.lost[index], yaxis: "y2", hovertemplate: "%{y:.2~f} lost", ...extra });
    if (data.lostAlike) {
      return visible.slice(0, 1).map((index) => trace(index, { type: "bar", name: "uploads", marker: { color: shade("--bars") } }));
    }
    return visible.map((index) => trace(index, { mode: "lines", line: { color: colour(data.rules[index]), width: 1.2, shape: "hvh" }, name: plain(data.rules[index].label), meta: data.rules[index].label }));
  }

  function drawRounds() {
    const metric = data.metrics[state.metric];
    const lossy = data.lost && metric.key !== "lost";
    const traces = roundTraces(metric);
    if (lossy) traces.push(...lostTraces());
    Plotly.react("plot-rounds", traces, layout({
      hovermode: narrow.matches ? "closest" : "x unified", bargap: 0.25,
      margin: { l: 8, r: 10, t: narrow.matches ? 8 : 30, b: 8 },
      xaxis: { title: { text: "Communication round" }, unifiedhovertitle: { text: "Round %{x}" }, anchor: lossy ? "y2" : "y", range: [0, data.lastRound + Math.max(0.6, data.lastRound / 100)] },
      yaxis: { title: { text: plain(metric.heading) + (metric.log ? ", log scale" : "") }, type: metric.log ? "log" : "linear", ...(metric.log ? { dtick: 1, exponentformat: "none" } : {}), domain: lossy ? [0.27, 1] : [0, 1] },
      ...(lossy ? { yaxis2: { title: { text: "Lost" }, domain: [0, 0.17], rangemode: "tozero", nticks: 4 } } : {}),
    }), config());
    const silent = shown().filter((i) => !metric.series[i]).map((i) => data.rules[i].label);
    byId("rounds-note").textContent = [metric.note, silent.length ? `Not recorded for ${silent.join(", ")}.` : ""].filter(Boolean).join(" ");
  }

  function mixed(share, largest) {
    const stops = ["--low", "--mid", "--high"].map(shade);
    const place = Math.min(Math.max(largest > 0 ? share / largest : 0, 0), 1) * 2;
    const [from, to] = place < 1 ? [stops[0], stops[1]] : [stops[1], stops[2]];
    const part = place < 1 ? place : place - 1;
    const channel = (hex, at) => parseInt(hex.slice(at, at + 2), 16);
    return `rgb(${[1, 3, 5].map((at) => Math.round(channel(from, at) * (1 - part) + channel(to, at) * part)).join(",")})`;
  }

  function drawWeights() {
    if (!data.weights.length) return;
    byId("weights-card").hidden = false;
    const holder = byId("weights");
    const largest = Math.max(...data.weights.flatMap((panel) => panel.shares.map((s) => s ?? 0)));
    const top = Math.max(...data.weights.flatMap((panel) => panel.weights.flat().map((w) => w ?? 0)));
    byId("ramp-low").textContent = "0 %";
    byId("ramp-high").textContent = `${(largest * 100).toFixed(0)} %`;
    byId("weights-note").textContent = data.weightsNote;
    // All panels first: a plot takes the width its panel has when it is drawn.
    const boxes = data.weights.map((panel, at) => {
      let box = byId(`weights-${at}`);
      if (!box) {
        const outer = element("div", "", { "data-label": data.rules[panel.rule].label });
        outer.append(element("h3", panel.title));
        box = element("div", "", { id: `weights-${at}`, class: "plot", role: "img", "aria-label": `Client weights of ${panel.title}` });
        outer.append(box);
        holder.append(outer);
      }
      box.parentElement.hidden = state.hidden.has(panel.rule);
      return box;
    });
    data.weights.forEach((panel, at) => {
      const box = boxes[at];
      if (box.parentElement.hidden) return;
      const traces = panel.clients.map((client, k) => ({
        x: data.rules[panel.rule].rounds, y: panel.weights[k].map((w) => (w === null ? null : w * 100)),
        mode: data.rules[panel.rule].rounds.length > 1 ? "lines" : "markers", connectgaps: true, name: plain(client), line: { width: 1.8, color: mixed(panel.shares[k] ?? 0, largest) },
        hovertemplate: `client ${plain(client)}: %{y:.2f} %<br>${panel.shares[k] === null ? "" : `holds ${(panel.shares[k] * 100).toFixed(2)} % of the data`}<extra>round %{x}</extra>`,
      }));
      Plotly.react(box, traces, layout({
        hovermode: "closest", xaxis: { nticks: 6, range: [0, data.lastRound + 0.6] },
        yaxis: { title: { text: "Weight (%)" }, range: [0, top * 105] },
      }), { ...config(), displayModeBar: false });
      Plotly.Plots.resize(box); // one that was drawn before, in another company
    });
  }

  function drawHoldings() {
    const held = data.holdings;
    if (!held) return;
    byId("holdings-card").hidden = false;
    byId("holdings-note").textContent = held.note;
    const box = byId("plot-holdings");
    const row = held.clients.length > 40 ? 9 : 26;
    box.style.height = `${Math.min(90 + row * held.clients.length, 900)}px`;
    const few = held.counts[0].length <= 12 && held.clients.length <= 30;
    Plotly.react(box, [{
      type: "heatmap", z: held.counts.map((counts) => counts.map((n) => (n ? Math.sqrt(n) : null))),
      customdata: held.counts, x: held.counts[0].map((_, c) => String(c)), y: held.clients.map(plain),
      text: few ? held.counts.map((counts) => counts.map((n) => (n ? String(n) : ""))) : undefined,
      texttemplate: few ? "%{text}" : undefined, textfont: { size: narrow.matches ? 9 : 12, color: shade("--ink") },
      colorscale: [[0, shade("--card")], [1, shade("--heat")]], zmin: 0, showscale: false, xgap: 2, ygap: 2,
      hovertemplate: "client %{y}, class %{x}: %{customdata} samples<extra></extra>",
    }], layout({
      xaxis: { title: { text: "Class" }, type: "category", showgrid: false },
      yaxis: { title: { text: "Client" }, type: "category", autorange: "reversed", showgrid: false },
    }), { ...config(), displayModeBar: false });
  }

  function buildRules() {
    const holder = byId("rules");
    data.rules.forEach((rule, index) => {
      const button = element("button", "", { type: "button", "aria-pressed": "true", "data-label": rule.label });
      button.innerHTML = '<svg width="28" height="10" aria-hidden="true"><line x1="0" y1="5" x2="28" y2="5" stroke-width="3"/></svg>';
      button.append(element("span", rule.label));
      button.addEventListener("click", () => {
        if (!state.hidden.delete(index)) state.hidden.add(index);
        draw();
      });
      holder.append(button);
    });
    const all = element("button", "Show all", { type: "button", id: "all" });
    all.addEventListener("click", () => { state.hidden.clear(); draw(); });
    holder.append(all);
  }

  function paintRules() {
    document.querySelectorAll("#rules button[data-label]").forEach((button, index) => {
      button.setAttribute("aria-pressed", String(!state.hidden.has(index)));
      const line = button.querySelector("line");
      line.setAttribute("stroke", colour(data.rules[index]));
      line.setAttribute("stroke-dasharray", data.rules[index].dash === "solid" ? "none" : data.rules[index].dash.replace(/px/g, ""));
    });
    byId("all").hidden = state.hidden.size === 0;
    document.querySelectorAll("tbody tr[data-label]").forEach((row) => {
      const index = data.rules.findIndex((rule) => rule.label === row.dataset.label);
      row.hidden = state.hidden.has(index);
      row.querySelector(".swatch").style.background = colour(data.rules[index]);
    });
  }

  function sortable() {
    const heads = [...document.querySelectorAll("thead th")];
    heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const body = document.querySelector("tbody");
      const key = (row) => row.children[column].dataset.value;
      const rows = [...body.rows].sort((a, b) => {
        if (column === 0) return (up ? 1 : -1) * a.dataset.label.localeCompare(b.dataset.label);
        if (key(a) === undefined || key(b) === undefined) return (key(a) === undefined) - (key(b) === undefined);
        return (up ? 1 : -1) * (Number(key(a)) - Number(key(b)));
      });
      body.append(...rows);
    }));
  }

  function draw() {
    root.dataset.theme = isDark() ? "dark" : "light";
    byId("theme").textContent = isDark() ? "Light" : "Dark";
    byId("theme").setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
    paintRules();
    drawRounds();
    drawWeights();
    drawHoldings();
  }

  data.metrics.forEach((metric, index) => byId("metric").append(element("option", metric.title, { value: index })));
  byId("metric").addEventListener("change", (event) => { state.metric = Number(event.target.value); draw(); });
  byId("seeds").addEventListener("change", (event) => { state.each = event.target.value === "each"; draw(); });
  byId("theme").addEventListener("click", () => { state.theme = isDark() ? "light" : "dark"; draw(); });
  systemDark.addEventListener("change", draw);
  narrow.addEventListener("change", draw);
  buildRules();
  sortable();
  draw();
  root.dataset.ready = "yes";
})();

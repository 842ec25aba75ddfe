"use strict";
const Page = (() => {
  const { element, narrow, shade } = Plots;
  const byId = (id) => document.getElementById(id);
  const root = document.documentElement;
  const systemDark = window.matchMedia("(prefers-color-scheme: dark)");
  const state = { hidden: new Set(), metric: null, each: false, theme: null };
  let data = JSON.parse(byId("data").textContent);

  const isDark = () => (state.theme ?? (systemDark.matches ? "dark" : "light")) === "dark";
  const colour = (rule) => (isDark() ? rule.dark : rule.light);
  const shown = () => data.rules.map((_, index) => index).filter((i) => !state.hidden.has(data.rules[i].label));
  const translucent = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, "0");
  const metric = () => data.metrics.find((one) => one.key === state.metric) ?? data.metrics[0];

  function roundLines(metric) {
    return shown().filter((index) => metric.series[index]).flatMap((index) => {
      const [rule, series] = [data.rules[index], metric.series[index]];
      const line = { rule, colour: colour(rule), dash: rule.dash, label: rule.label, values: series.mean };
      if (state.each && series.seeds) {
        return series.seeds.map((values, at) => ({ ...line, label: `${rule.label}, seed ${rule.seeds[at]}`, values, width: 1.5 }));
      }
      line.width = rule.rule === "fedhaw" ? 3 : 2;
      if (!series.spread) return [line];
      // A logarithmic axis has no place for zero: there the band ends at a tenth of the mean.
      const edge = (sign) => series.mean.map((mean, at) => {
        if (mean === null) return null;
        const value = mean + sign * (series.spread[at] ?? 0);
        return metric.log ? Math.max(value, mean / 10) : value;
      });
      return [{ ...line, low: edge(-1), high: edge(1), shadow: translucent(line.colour, 0.15), spread: series.spread }];
    });
  }

  function lostLines(lost) {
    const visible = shown().filter((index) => lost.series[index]);
    const alike = { label: "uploads lost", colour: shade("--bars"), fill: shade("--bars"), width: 0 };
    if (data.lostAlike && visible.length) {
      const longest = visible.reduce((a, b) => (lost.series[b].mean.length > lost.series[a].mean.length ? b : a));
      const few = lost.rounds.length <= 200;
      return [{ ...alike, values: lost.series[longest].mean, bars: few, steps: !few }];
    }
    return visible.map((index) => ({ label: data.rules[index].label, colour: colour(data.rules[index]), width: 1.2, steps: true, values: lost.series[index].mean }));
  }

  function drawRounds() {
    const chosen = metric();
    const lost = data.metrics.find((one) => one.key === data.lost && one !== chosen);
    byId("plot-lost").hidden = !lost;
    if (!chosen) return;
    const words = (notation) => (line, at) => {
      const mean = Plots.written(line.values[at], notation);
      const spread = line.spread?.[at];
      return spread == null ? mean : `${mean} ± ${Plots.written(spread, notation)}`;
    };
    Plots.curves(byId("plot-rounds"), {
      rounds: chosen.rounds, lines: roundLines(chosen), heading: chosen.heading + (chosen.log ? ", log scale" : ""),
      log: chosen.log, last: data.lastRound, said: words(chosen), sync: "rounds", quiet: Boolean(lost),
    });
    if (lost) {
      Plots.curves(byId("plot-lost"), {
        rounds: lost.rounds, lines: lostLines(lost), heading: "Lost", floor: true, last: data.lastRound, said: words(lost), sync: "rounds",
      });
    }
    const silent = shown().filter((i) => !chosen.series[i]).map((i) => data.rules[i].label);
    byId("rounds-note").textContent = [chosen.note, silent.length ? `Not recorded for ${silent.join(", ")}.` : "", data.thinned].filter(Boolean).join(" ");
  }

  function mixed(share, largest) {
    const stops = ["--low", "--mid", "--high"].map(shade);
    const place = Math.min(Math.max(largest > 0 ? share / largest : 0, 0), 1) * 2;
    const [from, to] = place < 1 ? [stops[0], stops[1]] : [stops[1], stops[2]];
    const part = place < 1 ? place : place - 1;
    const channel = (hex, at) => parseInt(hex.slice(at, at + 2), 16);
    return `rgb(${[1, 3, 5].map((at) => Math.round(channel(from, at) * (1 - part) + channel(to, at) * part)).join(",")})`;
  }

  // What there is of each client, one card a quantity, one panel a rule.
  function drawClients() {
    const holder = byId("clients");
    data.clients.forEach((quantity, which) => {
      const card = byId(`clients-${which}`) ?? clientCard(quantity, which);
      const panels = card.querySelector(".panels");
      const largest = Math.max(0, ...quantity.panels.flatMap((panel) => panel.shares.map((s) => s ?? 0)));
      card.querySelector(".high").textContent = `${(largest * 100).toFixed(0)} %`;
      card.querySelector(".more").textContent = quantity.note;
      // All panels first: a plot takes the width its panel has when it is drawn.
      const boxes = quantity.panels.map((panel, at) => {
        let outer = panels.children[at];
        if (!outer) {
          panels.append((outer = element("div", "", { "data-label": data.rules[panel.rule].label })));
          outer.append(element("h3", panel.title), Plots.box(`clients-${which}-${at}`, { "aria-label": `${quantity.title}: ${panel.title}` }));
        }
        outer.hidden = state.hidden.has(data.rules[panel.rule].label);
        return outer.lastElementChild;
      });
      quantity.panels.forEach((panel, at) => {
        if (boxes[at].parentElement.hidden) return;
        Plots.curves(boxes[at], {
          rounds: panel.rounds, heading: quantity.heading, top: quantity.top, last: data.lastRound, one: true, quiet: true,
          lines: panel.clients.map((client, k) => ({ label: `client ${client}`, values: panel.values[k], width: 1.6, share: panel.shares[k], colour: mixed(panel.shares[k] ?? 0, largest) })),
          said: (line, place) => Plots.written(line.values[place], quantity) + (line.share === null ? "" : `, holds ${(line.share * 100).toFixed(2)} % of the data`),
        });
      });
      holder.append(card);
    });
  }

  function clientCard(quantity, which) {
    const card = element("section", "", { class: "card", id: `clients-${which}`, "aria-labelledby": `clients-title-${which}` });
    const note = element("p", "One line a client, coloured by its share of the data: ", { class: "note" });
    const ramp = element("span", "", { class: "ramp" });
    ramp.append(element("span", "0 %"), element("span", "", { class: "shades", "aria-hidden": "true" }), element("span", "", { class: "high" }));
    note.append(ramp, " ", element("span", "", { class: "more" }));
    card.append(element("h2", quantity.title, { id: `clients-title-${which}` }), note, element("div", "", { class: "panels" }));
    return card;
  }

  function drawHoldings() {
    const held = data.holdings;
    if (!held) return;
    byId("holdings-card").hidden = false;
    byId("holdings-note").textContent = held.note;
    const box = byId("plot-holdings");
    const row = held.clients.length > 40 ? 9 : 24;
    box.style.height = `${Math.min(44 + row * held.clients.length, 900)}px`;
    box.redraw = () => Plots.areas(box, {
      rows: held.clients, columns: held.counts[0].map((_, c) => String(c)), counts: held.counts, across: "Class", down: "Client",
      said: (r, c) => `client ${held.clients[r]}, class ${c}: ${held.counts[r][c]} samples`,
    });
    box.redraw();
  }

  function buildRules() {
    const holder = byId("rules");
    holder.replaceChildren(...data.rules.map((rule) => {
      const button = element("button", "", { type: "button", "aria-pressed": "true", "data-label": rule.label });
      button.innerHTML = '<svg width="28" height="10" aria-hidden="true"><line x1="0" y1="5" x2="28" y2="5" stroke-width="3"/></svg>';
      button.append(element("span", rule.label));
      button.addEventListener("click", () => {
        if (!state.hidden.delete(rule.label)) state.hidden.add(rule.label);
        draw();
      });
      return button;
    }));
    const all = element("button", "Show all", { type: "button", id: "all" });
    all.addEventListener("click", () => { state.hidden.clear(); draw(); });
    holder.append(all);
  }

  function paintRules() {
    document.querySelectorAll("#rules button[data-label]").forEach((button, index) => {
      button.setAttribute("aria-pressed", String(!state.hidden.has(data.rules[index].label)));
      const line = button.querySelector("line");
      line.setAttribute("stroke", colour(data.rules[index]));
      line.setAttribute("stroke-dasharray", data.rules[index].dash.join(",") || "none");
    });
    byId("all").hidden = state.hidden.size === 0;
    document.querySelectorAll("tbody tr[data-label]").forEach((row) => {
      const rule = data.rules.find((one) => one.label === row.dataset.label);
      row.hidden = state.hidden.has(rule.label);
      row.querySelector(".swatch").style.background = colour(rule);
    });
  }

  function buildMetrics() {
    byId("metric").replaceChildren(...data.metrics.map((one) => element("option", one.title, { value: one.key })));
    if (metric()) byId("metric").value = metric().key;
  }

  function sortable() {
    const heads = [...document.querySelectorAll("#table thead th")];
    heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const body = document.querySelector("#table tbody");
      const key = (row) => row.children[column].dataset.value;
      const rows = [...body.rows].sort((a, b) => {
        if (column === 0) return (up ? 1 : -1) * a.dataset.label.localeCompare(b.dataset.label);
        if (key(a) === undefined || key(b) === undefined) return (key(a) === undefined) - (key(b) === undefined);
        return (up ? 1 : -1) * (Number(key(a)) - Number(key(b)));
      });
      body.append(...rows);
    }));
  }

  // What a server that watches runs has to tell; see live.js.
  function update(news) {
    const structure = () => JSON.stringify([data.rules, data.metrics.map((one) => one.key), data.clients.map((one) => [one.title, one.panels.map((panel) => panel.clients)])]);
    const before = structure();
    data = news.data;
    for (const [id, content] of Object.entries(news.parts)) byId(id).innerHTML = content;
    sortable();
    if (structure() !== before) {
      byId("clients").replaceChildren();
      buildRules();
      buildMetrics();
    }
    draw();
  }

  function drawFirst() {
    root.dataset.theme = isDark() ? "dark" : "light";
    byId("theme").textContent = isDark() ? "Light" : "Dark";
    byId("theme").setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
    paintRules();
    drawRounds();
  }

  function drawRest() {
    drawClients();
    drawHoldings();
  }

  function draw() {
    drawFirst();
    drawRest();
  }

  byId("metric").addEventListener("change", (event) => { state.metric = event.target.value; draw(); });
  byId("seeds").addEventListener("change", (event) => { state.each = event.target.value === "each"; draw(); });
  byId("theme").addEventListener("click", () => { state.theme = isDark() ? "light" : "dark"; draw(); });
  systemDark.addEventListener("change", draw);
  narrow.addEventListener("change", draw);
  ["plot-rounds", "plot-lost", "plot-holdings"].forEach((id) => Plots.watch(byId(id)));
  buildRules();
  buildMetrics();
  sortable();
  drawFirst();
  // What lies further down is drawn when the top is on the screen.
  requestAnimationFrame(() => setTimeout(() => { drawRest(); root.dataset.ready = "yes"; }));
  return { update };
})();

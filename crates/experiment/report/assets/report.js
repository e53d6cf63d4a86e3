// Draws the lines of the report with uPlot. The data is in the element #data; see crates/experiment/report/src/plots.rs.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const color = (i) => css(`--c${i % 10}`);
  // Ten colors, then the same colors in other patterns.
  const DASHES = [[], [8, 4], [2, 3], [12, 3, 2, 3]];
  const HEIGHT = 260;
  // The padding of a card lies to its left and right.
  const width = ({ card }) => Math.max(240, card.clientWidth - 34);
  let charts = [];

  const number = (v) => {
    if (v == null || !isFinite(v)) return "–";
    const a = Math.abs(v);
    if (a === 0) return "0";
    if (a >= 1000) return v.toLocaleString("en-US", { maximumFractionDigits: 0 });
    return a >= 100 ? v.toFixed(1) : a >= 1 ? v.toFixed(2) : a >= 0.001 ? v.toFixed(3) : v.toExponential(1);
  };
  const tick = (v) => (v == null ? "" : Math.abs(v) >= 10000 || (v !== 0 && Math.abs(v) < 0.001) ? v.toPrecision(2) : String(+v.toPrecision(6)));
  const named = (axis) => (axis.unit ? `${axis.label} [${axis.unit}]` : axis.label);
  const valued = (axis) => (_, v) => (v == null ? "–" : axis.unit ? `${number(v)} ${axis.unit}` : number(v));

  function options(plot, kind, width) {
    const soft = css("--soft"), grid = { stroke: css("--grid"), width: 1 };
    const axis = (a, extra) => ({
      label: named(a), stroke: soft, grid, ticks: grid, font: "12px system-ui, sans-serif",
      labelFont: "12px system-ui, sans-serif", labelSize: 22, values: (_, vs) => vs.map(tick), ...extra,
    });
    const series = [{ label: plot.x.label, value: valued(plot.x) }];
    const values = [plot.xs], bands = [];
    const gaps = { spanGaps: kind !== "series" };
    plot.lines.forEach((line, i) => {
      if (line.high && line.high.length) {
        const fill = css("--panel") && `${color(i)}2b`;
        const edge = { class: "ci", stroke: "transparent", points: { show: false }, spanGaps: true };
        series.push({ ...edge, label: `${line.label} high` }, { ...edge, label: `${line.label} low` });
        values.push(line.high, line.low);
        bands.push({ series: [series.length - 2, series.length - 1], fill });
      }
      series.push({
        label: line.label, stroke: color(i), dash: DASHES[Math.floor(i / 10) % DASHES.length], width: 2, value: valued(plot.y), ...gaps,
        points: { show: kind === "sweep" || kind === "events", size: 6, fill: color(i) },
        ...(kind === "cdf" ? { paths: uPlot.paths.stepped({ align: 1 }) } : kind === "events" ? { paths: () => null } : {}),
      });
      values.push(line.ys);
    });
    const upward = (_, low, high) => {
      if (low == null) return [0, 1];
      const base = low >= 0 ? 0 : low;
      return [base, high > base ? high + (high - base) * 0.06 : base + 1];
    };
    return [{
      width, height: HEIGHT, series, bands,
      scales: {
        x: { time: false, distr: plot.x.log ? 3 : 1 },
        y: { range: kind === "cdf" ? [0, 1] : upward },
      },
      axes: [axis(plot.x, { size: 42 }), axis(plot.y, { size: 58 })],
      // A border has not every pattern; it shows at least that the line is not solid.
      legend: { live: true, markers: { dash: (u, i) => (u.series[i].dash?.length ? "dashed" : "solid") } },
      cursor: { drag: { x: true, y: false }, focus: { prox: 24 }, points: { size: 8 } },
      focus: { alpha: 0.35 },
    }, values];
  }

  function place(holder, plot, kind) {
    const card = document.createElement("figure");
    card.className = "card";
    const caption = document.createElement("figcaption");
    caption.textContent = plot.title;
    const target = document.createElement("div");
    card.append(caption, target);
    holder.append(card);
    addSaving(card, plot.title, { svg: () => linesAsSvg(plot, kind), csv: () => linesAsCsv(plot) });
    return { card, target, plot, kind };
  }

  // Only the lines that the choice leaves; a line without such a setting is always one of them.
  function chosen(plot) {
    const choices = [...document.querySelectorAll("select[data-key]")].filter((select) => select.value !== "");
    const fits = (line) => choices.every(({ dataset, value }) => !(dataset.key in line.set) || line.set[dataset.key] === value);
    return { ...plot, lines: plot.lines.filter(fits) };
  }

  // --- downloads ---

  function save(title, ending, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = `${title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "")}.${ending}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function addSaving(card, title, of) {
    const buttons = document.createElement("span");
    buttons.className = "save";
    for (const [ending, type] of [["svg", "image/svg+xml"], ["csv", "text/csv"]]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = ending.toUpperCase();
      button.title = `Download as ${ending.toUpperCase()}`;
      button.addEventListener("click", () => save(title, ending, type, of[ending]()));
      buttons.append(button);
    }
    card.querySelector("figcaption").append(buttons);
  }

  // What a spreadsheet would take for a formula is a text to it behind an apostrophe.
  const inert = (v) => (/^[=+\-@\t\r]/.test(v) && !isFinite(v) ? `'${v}` : String(v));
  const quoted = (v) => (v == null ? "" : /[",\r\n]/.test(v) ? `"${inert(v).replaceAll('"', '""')}"` : inert(v));
  const csv = (rows) => rows.map((row) => row.map(quoted).join(",")).join("\n") + "\n";

  function linesAsCsv(plot) {
    const bounded = (line) => line.high && line.high.length > 0;
    const names = plot.lines.flatMap((line) => [line.label, ...(bounded(line) ? [`${line.label} low`, `${line.label} high`] : [])]);
    const values = (line, i) => [line.ys[i], ...(bounded(line) ? [line.low[i], line.high[i]] : [])];
    const rows = plot.xs.map((x, i) => [x, ...plot.lines.flatMap((line) => values(line, i))]);
    return csv([[named(plot.x), ...names], ...rows]);
  }

  function barsAsCsv(card) {
    const rows = [...card.querySelectorAll("g[data-case]")].map(({ dataset }) => [dataset.case, dataset.mean, dataset.half]);
    return csv([["case", card.dataset.title, "half width of the 95 % confidence interval"], ...rows]);
  }

  // The picture as it is on the page, with its colors.
  function barsAsSvg(card) {
    const picture = card.querySelector("svg"), copy = picture.cloneNode(true);
    const from = [...picture.querySelectorAll("*")], to = [...copy.querySelectorAll("*")];
    from.forEach((element, i) => {
      const style = getComputedStyle(element);
      for (const key of ["fill", "stroke", "stroke-width", "opacity", "font-size", "font-family"]) to[i].setAttribute(key, style.getPropertyValue(key));
    });
    const [, , width, height] = copy.getAttribute("viewBox").split(" ");
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    return legal(new XMLSerializer().serializeToString(copy));
  }

  // No XML may have these characters, however they are written.
  const legal = (text) => text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd");
  const escaped = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

  // Round numbers from `low` to `high`, about five.
  function ticks(low, high, log) {
    if (log) {
      const all = [];
      for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++) if (10 ** power >= low) all.push(10 ** power);
      return all;
    }
    const rough = (high - low) / 5 || 1, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
    const all = [];
    for (let n = Math.ceil(low / step); n * step <= high + step * 1e-9; n++) all.push(n * step);
    return all;
  }

  function linesAsSvg(plot, kind) {
    const W = 720, H = 400, left = 70, right = 20, top = 34, bottom = 56, row = 17;
    const height = H + row * plot.lines.length + 8;
    const values = plot.lines.flatMap((line) => [line.ys, line.low ?? [], line.high ?? []].flat()).filter((v) => v != null);
    const [x0, x1] = [Math.min(...plot.xs), Math.max(...plot.xs)];
    const y0 = Math.min(0, ...values), y1 = kind === "cdf" && plot.y.unit === "" ? 1 : Math.max(...values, y0 + 1e-9);
    const onX = plot.x.log ? Math.log : (v) => v;
    const x = (v) => (left + ((onX(v) - onX(x0)) / (onX(x1) - onX(x0) || 1)) * (W - left - right)).toFixed(1);
    const y = (v) => (H - bottom - ((v - y0) / (y1 - y0 || 1)) * (H - top - bottom)).toFixed(1);
    const text = (at, content, extra = "") => `<text x="${at[0]}" y="${at[1]}" ${extra}>${escaped(content)}</text>`;
    const grid = [
      ...ticks(x0, x1, plot.x.log).map((v) => `<path d="M${x(v)} ${top}V${H - bottom}" stroke="#ddd"/>` + text([x(v), H - bottom + 16], tick(v), 'text-anchor="middle"')),
      ...ticks(y0, y1, false).map((v) => `<path d="M${left} ${y(v)}H${W - right}" stroke="#ddd"/>` + text([left - 6, +y(v) + 4], tick(v), 'text-anchor="end"')),
    ];
    const point = (v, i) => `${x(plot.xs[i])} ${y(v)}`;
    // As on the page: shares are steps, and a series has gaps.
    const next = (ys, i) => (kind === "cdf" ? `H${x(plot.xs[i])}V${y(ys[i])}` : `${kind === "series" && ys[i - 1] == null ? "M" : "L"}${point(ys[i], i)}`);
    const path = (ys) => ys.reduce((d, v, i) => (v == null ? d : d + (d ? next(ys, i) : `M${point(v, i)}`)), "");
    const dots = (ys, i) => ys.map((v, at) => (v == null ? "" : `<circle cx="${x(plot.xs[at])}" cy="${y(v)}" r="3" fill="${color(i)}"/>`)).join("");
    const lines = plot.lines.map((line, i) => {
      const dash = DASHES[Math.floor(i / 10) % DASHES.length].join(" ");
      const style = `stroke="${color(i)}" stroke-width="2" fill="none"${dash ? ` stroke-dasharray="${dash}"` : ""}`;
      const known = line.high ? line.high.map((_, at) => at).filter((at) => line.high[at] != null && line.low[at] != null) : [];
      const edge = (ys, order) => order.map((at) => `${x(plot.xs[at])},${y(ys[at])}`).join(" ");
      const band = known.length ? `<polygon points="${edge(line.high, known)} ${edge(line.low, known.slice().reverse())}" fill="${color(i)}" opacity="0.17"/>` : "";
      const at = H + row * i;
      const drawn = kind === "events" ? dots(line.ys, i) : `<path class="line" d="${path(line.ys)}" ${style}/>`;
      return `${band}${drawn}<path d="M${left} ${at}h24" ${style}/>` + text([left + 32, at + 4], line.label);
    });
    const labels = [
      text([left, 20], plot.title, 'font-weight="600"'),
      text([(left + W - right) / 2, H - 18], named(plot.x), 'text-anchor="middle"'),
      text([16, (top + H - bottom) / 2], named(plot.y), `text-anchor="middle" transform="rotate(-90 16 ${(top + H - bottom) / 2})"`),
    ];
    return legal(`<svg xmlns="http://www.w3.org/2000/svg" width="${W}" height="${height}" font-family="sans-serif" font-size="12">` +
      `<rect width="100%" height="100%" fill="#fff"/>${grid.join("")}${labels.join("")}${lines.join("")}</svg>`);
  }

  function render() {
    charts.forEach((c) => c.chart.destroy());
    charts = [];
    document.querySelectorAll(".plots").forEach((holder) => holder.replaceChildren());
    const holder = (id) => document.querySelector(`#${id} .plots`);
    const choice = document.getElementById("case");
    const index = choice ? Number(choice.value) : 0;
    const series = data.series.filter((metric) => metric.cases[index]);
    // All cards first: their widths depend on how many there are.
    const cards = [
      ...data.sweeps.map((plot) => place(holder("sweeps"), chosen(plot), "sweep")),
      ...data.distributions.map((plot) => place(holder("distributions"), chosen(plot), plot.y.unit ? "ranked" : "cdf")),
      ...series.map(({ events, cases }) => place(holder("series"), cases[index], events ? "events" : "series")),
    ];
    const widths = cards.map(width);
    charts = cards.map(({ card, target, plot, kind }, i) => {
      const [opts, values] = options(plot, kind, widths[i]);
      return { card, chart: new uPlot(opts, values, target) };
    });
    root.dataset.charts = String(charts.length);
  }

  function theme(name) {
    root.dataset.theme = name;
    render();
  }

  const wanted = location.hash.slice(1);
  const system = matchMedia("(prefers-color-scheme: dark)");
  const preferred = () => (system.matches ? "dark" : "light");
  document.getElementById("theme").addEventListener("click", () => theme(root.dataset.theme === "dark" ? "light" : "dark"));
  system.addEventListener("change", () => theme(preferred()));
  document.getElementById("case")?.addEventListener("change", render);
  document.querySelectorAll("select[data-key]").forEach((select) => select.addEventListener("change", render));
  document.querySelectorAll("figure.card").forEach((card) => {
    card.dataset.title = card.querySelector("figcaption").textContent;
    addSaving(card, card.dataset.title, { svg: () => barsAsSvg(card), csv: () => barsAsCsv(card) });
  });
  let windowWidth = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === windowWidth) return;
    windowWidth = innerWidth;
    charts.forEach((c) => c.chart.setSize({ width: width(c), height: HEIGHT }));
  });
  theme(wanted === "dark" || wanted === "light" ? wanted : preferred());
})();

// Draws the lines of the report with uPlot. The data is in the element #data; see crates/report/src/plots.rs.
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
    const gaps = kind === "series" ? { spanGaps: false } : { spanGaps: true };
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
        points: { show: kind === "sweep", size: 6, fill: color(i) },
        ...(kind === "cdf" ? { paths: uPlot.paths.stepped({ align: 1 }) } : {}),
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
    return { card, target, plot, kind };
  }

  function render() {
    charts.forEach((c) => c.chart.destroy());
    charts = [];
    document.querySelectorAll(".plots").forEach((holder) => holder.replaceChildren());
    const holder = (id) => document.querySelector(`#${id} .plots`);
    const choice = document.getElementById("case");
    const index = choice ? Number(choice.value) : 0;
    const series = data.series.map((metric) => metric.cases[index]).filter(Boolean);
    // All cards first: their widths depend on how many there are.
    const cards = [
      ...data.sweeps.map((plot) => place(holder("sweeps"), plot, "sweep")),
      ...data.distributions.map((plot) => place(holder("distributions"), plot, "cdf")),
      ...series.map((plot) => place(holder("series"), plot, "series")),
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
  let windowWidth = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === windowWidth) return;
    windowWidth = innerWidth;
    charts.forEach((c) => c.chart.setSize({ width: width(c), height: HEIGHT }));
  });
  theme(wanted === "dark" || wanted === "light" ? wanted : preferred());
})();

"use strict";
// Lines and histograms as SVG. Colors come from colors.css; a table beside each drawing tells its numbers to screen readers.

// A digit of 13 px is 7.5 px wide. A drawing is as wide as its place, if that is shown, so that its text is never scaled.
const CHART = { width: 440, height: 230, right: 16, top: 12, bottom: 40, digit: 7.5 };

/** Text with at most two decimals, such as 10,000 or 95.5%. */
function numberText(value, percent = false) {
  if (percent) return +(100 * value).toFixed(2) + "%";
  if (Math.abs(value) >= 1e6) return +(value / 1e6).toFixed(2) + "M";
  return (+value.toFixed(2) || 0).toLocaleString("en-US");
}

/** A round step of at least `rough`: 1, 2 or 5 times a power of 10, never finer than two decimals. */
function tickStep(rough, whole = false) {
  rough = Math.max(rough, whole ? 1 : 0.01);
  const power = 10 ** Math.floor(Math.log10(rough) + 1e-9);
  return power * [1, 2, 5, 10].find((times) => power * times >= rough * (1 - 1e-9));
}

/** From values to positions, with ticks at round numbers; with `nice`, the axis begins and ends at a tick. */
function makeAxis(low, high, { percent = false, whole = false, nice = false } = {}) {
  if (!(high > low)) {
    const half = Math.max(Math.abs(low), 1) / 2;
    [low, high] = [low - half, high + half];
  }
  const scale = percent ? 100 : 1, step = tickStep(((high - low) * scale) / 4, whole) / scale;
  const begin = Math.floor(low / step + 1e-9), end = Math.max(Math.ceil(high / step - 1e-9), begin + 1);
  if (nice) [low, high] = [begin * step, end * step];
  const ticks = Array.from({ length: end - begin + 1 }, (_, i) => (begin + i) * step)
    .filter((tick) => tick >= low - 1e-9 && tick <= high + 1e-9);
  return { low, high, ticks, labels: ticks.map((tick) => numberText(tick, percent)) };
}

function svgPart(name, attributes, text) {
  const part = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) part.setAttribute(key, value);
  if (text !== undefined) part.textContent = text;
  return part;
}

/** An empty drawing with its grid; `x` and `y` give positions. The left margin has room for the longest number. */
function makeGrid(place, across, up, title) {
  const { height, right, top, bottom, digit } = CHART, width = place.clientWidth || CHART.width, base = height - bottom;
  const left = 14 + digit * Math.max(...up.labels.map((label) => label.length));
  const x = (value) => left + ((value - across.low) / (across.high - across.low)) * (width - right - left);
  const y = (value) => base - ((value - up.low) / (up.high - up.low)) * (base - top);
  const svg = svgPart("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true", class: "chart" });
  up.ticks.forEach((tick, i) => {
    svg.append(svgPart("line", { x1: left, x2: width - right, y1: y(tick), y2: y(tick), stroke: "var(--line)" }));
    svg.append(svgPart("text", { x: left - 7, y: y(tick) + 4, "text-anchor": "end" }, up.labels[i]));
  });
  across.ticks.forEach((tick, i) => {
    const half = (digit * across.labels[i].length) / 2, at = Math.max(half, Math.min(width - half, x(tick)));
    svg.append(svgPart("text", { x: at, y: base + 17, "text-anchor": "middle" }, across.labels[i]));
  });
  svg.append(svgPart("text", { x: (left + width - right) / 2, y: height - 5, "text-anchor": "middle" }, title));
  svg.setAttribute("font-size", "13");
  svg.setAttribute("fill", "var(--soft)");
  Object.assign(svg.style, { display: "block", width: "100%", height: "auto" }); // a policy may forbid style attributes
  place.replaceChildren(svg);
  return { svg, x, y, base };
}

/** At most 12 of the numbers, for those who do not see the drawing. */
function tellNumbers(place, heads, rows) {
  const [box, table] = ["div", "table"].map((tag) => document.createElement(tag)), step = Math.max(1, Math.ceil(rows.length / 12));
  Object.assign(box.style, { position: "absolute", width: "1px", height: "1px", overflow: "hidden", clipPath: "inset(50%)" });
  for (const cells of [heads, ...rows.filter((_, i) => i % step === 0 || i === rows.length - 1)]) {
    const row = table.insertRow();
    for (const cell of cells) row.insertCell().textContent = cell;
  }
  place.style.position = "relative";
  box.append(table);
  place.append(box);
}

/**
 * Lines over a common axis.
 *
 * @param {HTMLElement} place - Holds the drawing.
 * @param {object} chart - `series`, each with `name`, `x`, `y` (null is not drawn), `dots` instead of a line, and `band`,
 *   [low, high] for each x; `across`, the title of the x axis; `percent`, whether y are shares; `whole`, whether x are
 *   integers; `zero`, whether the y axis begins at 0. Several series get a legend.
 */
function drawLines(place, { series, across, percent = false, whole = false, zero = false }) {
  const known = (values) => values.filter((value) => value !== null && Number.isFinite(value));
  const xs = series.flatMap((one) => one.x), ys = known(series.flatMap((one) => [...one.y, ...(one.band || []).flat()]));
  const axis = makeAxis(Math.min(...xs), Math.max(...xs), { whole });
  const up = makeAxis(zero ? 0 : ys.length ? Math.min(...ys) : 0, ys.length ? Math.max(...ys) : 1, { percent, nice: true });
  const { svg, x, y } = makeGrid(place, axis, up, across);
  series.forEach((one, number) => {
    const color = `var(--c${number % 10})`;
    const at = one.x.map((value, i) => [value, one.y[i]]).filter(([, value]) => value !== null && Number.isFinite(value));
    if (one.band) {
      const edge = (side) => one.x.map((value, i) => `${x(value)},${y(one.band[i][side])}`);
      svg.append(svgPart("polygon", { points: [...edge(1), ...edge(0).reverse()].join(" "), fill: color, opacity: 0.18 }));
    }
    if (one.dots || at.length === 1) for (const [a, b] of at) svg.append(svgPart("circle", { cx: x(a), cy: y(b), r: 3, fill: color }));
    else {
      const points = at.map(([a, b]) => `${x(a)},${y(b)}`).join(" ");
      svg.append(svgPart("polyline", { points, fill: "none", stroke: color, "stroke-width": 2, "stroke-linejoin": "round" }));
    }
  });
  if (series.length > 1) {
    const keys = document.createElement("div");
    keys.className = "keys";
    series.forEach((one, number) => {
      const key = document.createElement("span"), dot = document.createElement("i");
      dot.style.background = `var(--c${number % 10})`;
      key.append(dot, one.name);
      keys.append(key);
    });
    place.prepend(keys);
  }
  const longest = series.reduce((a, b) => (b.x.length > a.x.length ? b : a));
  const rows = longest.x.map((value, i) => [value, ...series.map((one) => (one.y[i] == null ? "" : numberText(one.y[i], percent)))]);
  tellNumbers(place, [across, ...series.map((one) => one.name)], rows);
}

/** Counts between edges; `across` is the title of the x axis. */
function drawHistogram(place, { counts, edges, across, whole = false }) {
  const axis = makeAxis(edges[0], edges[edges.length - 1], { whole });
  const up = makeAxis(0, Math.max(...counts), { whole: true, nice: true });
  const { svg, x, y, base } = makeGrid(place, axis, up, across);
  counts.forEach((count, i) => {
    if (!count) return;
    const width = Math.max(x(edges[i + 1]) - x(edges[i]) - 0.6, 0.6);
    svg.append(svgPart("rect", { x: x(edges[i]), y: y(count), width, height: base - y(count), fill: "var(--c0)" }));
  });
  const rows = counts.map((count, i) => [`${numberText(edges[i])} to ${numberText(edges[i + 1])}`, count]).filter(([, count]) => count);
  tellNumbers(place, [across, "count"], rows);
}

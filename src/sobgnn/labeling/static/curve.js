"use strict";
// Estimated accuracy with its interval, by the number of labels, as a small SVG.
function drawCurve(place, points) {
  const make = (name, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  place.replaceChildren();
  if (points.length < 2) return;
  const [width, height, left, bottom] = [420, 150, 36, 20];
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const first = points[0].labels, last = points[points.length - 1].labels;
  const low = Math.max(0, Math.min(...points.map((p) => p.interval[0])) - 0.02);
  const x = (labels) => left + ((labels - first) / Math.max(last - first, 1)) * (width - left - 8);
  const y = (share) => 6 + ((1 - share) / Math.max(1 - low, 0.01)) * (height - bottom - 10);
  for (const share of [low, (1 + low) / 2, 1]) {
    svg.append(make("line", { x1: left, x2: width, y1: y(share), y2: y(share), class: "axis" }));
    const text = make("text", { x: 0, y: y(share) + 4 });
    text.textContent = Math.round(100 * share) + " %";
    svg.append(text);
  }
  const top = points.map((p) => `${x(p.labels)},${y(p.interval[1])}`);
  const under = points.map((p) => `${x(p.labels)},${y(p.interval[0])}`).reverse();
  svg.append(make("polygon", { points: [...top, ...under].join(" "), class: "band" }));
  svg.append(make("polyline", { points: points.map((p) => `${x(p.labels)},${y(p.accuracy)}`).join(" "), class: "line" }));
  for (const [labels, anchor] of [[first, "start"], [last, "end"]]) {
    const text = make("text", { x: x(labels), y: height - 4, "text-anchor": anchor });
    text.textContent = labels + " labels";
    svg.append(text);
  }
  place.append(svg);
}

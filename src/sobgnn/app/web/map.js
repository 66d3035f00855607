"use strict";
// Points on a canvas: circles, y upward, both axes fill the box (far distances mean little, so their ratio does not count).

const MOVE_MS = 800; // from one layout to the next
const MOST_ZOOM = 60;
const PAD = 14; // CSS pixels between the points and the border
const NEAR = 14; // within so many CSS pixels, a point is under the pointer

/**
 * A map of points. A drag pans; where `lasso` is given, a drag selects instead, and Shift and drag pans. The wheel zooms
 * with Ctrl or after a click on the map, and scrolls the page otherwise. A finger scrolls the page, unless `drawing` is set.
 *
 * @param {HTMLCanvasElement} canvas - Its size on the page is the map's.
 * @param {object} actions - `lasso(rows)`, `click(row)`, and `hover(row, x, y)` with row -1 for none.
 */
class PointMap {
  constructor(canvas, actions = {}) {
    this.canvas = canvas;
    this.actions = actions;
    this.x = this.y = new Float32Array(0); // shares of the box
    this.group = null; // for each point, its place in `styles`
    this.styles = [{ color: "var(--faint)" }]; // drawn in this order: { color, alpha, radius }; a point of none is hidden
    this.rings = []; // above the points: { rows, color, apart }, `apart` pixels around each point
    this.names = []; // in the middle of their points: { text, rows }
    this.message = ""; // shown while there are no points
    this.view = { left: 0, bottom: 0, zoom: 1 }; // the part shown is [left, left + 1 / zoom], and so on upward
    this.lasso = [];
    this.start = null; // where the button was pressed
    this.awake = false; // after a click, until the pointer leaves
    this.sheet = document.createElement("canvas"); // the points as they were last drawn: a lasso moves above them
    this.stale = true;
    this.pending = false;
    this.drawing = false;
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.up(event));
    canvas.addEventListener("pointercancel", () => this.release()); // the browser scrolls the page
    canvas.addEventListener("pointerleave", () => { this.awake = false; this.hover(-1); });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && !this.awake) return;
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY / 400), this.at(event));
    }, { passive: false });
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Whether a finger draws the lasso instead of scrolling the page. */
  set drawing(on) {
    this.draws = on;
    this.canvas.style.touchAction = on ? "none" : "pan-y pinch-zoom";
  }
  get drawing() {
    return this.draws;
  }

  /** Take coordinates in any unit, y upward; points move there if there were as many before. */
  setPlace(x, y) {
    const from = [this.x, this.y], to = [shares(x), shares(y)];
    this.view = { left: 0, bottom: 0, zoom: 1 };
    this.target = to;
    [this.x, this.y] = to;
    this.draw();
    if (!x.length || from[0].length !== x.length || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    const began = performance.now();
    const step = (now) => {
      if (this.target !== to) return; // others came meanwhile
      const share = this.start ? 1 : Math.min(1, Math.max(0, (now - began) / MOVE_MS)); // a lasso is around still points
      const eased = share * share * (3 - 2 * share);
      [this.x, this.y] = share === 1 ? to : to.map((axis, k) => axis.map((value, i) => from[k][i] + eased * (value - from[k][i])));
      this.draw();
      if (share < 1) requestAnimationFrame(step);
    };
    [this.x, this.y] = from;
    requestAnimationFrame(step);
  }

  /** Say how each point looks. */
  setStyles(group, styles) {
    [this.group, this.styles] = [group, styles];
    this.draw();
  }

  zoom(factor, [x, y] = this.middle()) {
    const zoom = Math.max(1, Math.min(MOST_ZOOM, this.view.zoom * factor)), [width, height] = this.size();
    const [right, up] = [(x - PAD) / (width - 2 * PAD), (height - PAD - y) / (height - 2 * PAD)];
    this.show(this.view.left + right / this.view.zoom - right / zoom, this.view.bottom + up / this.view.zoom - up / zoom, zoom);
  }

  /** Show all points. */
  reset() {
    this.show(0, 0, 1);
  }

  /** The row under a place of the canvas, or -1. */
  nearest([x, y]) {
    let best = -1, least = NEAR * NEAR;
    for (let row = 0; row < this.x.length; row++) {
      if (this.hidden(row)) continue;
      const [a, b] = this.screen(row), apart = (a - x) ** 2 + (b - y) ** 2;
      if (apart < least) { least = apart; best = row; }
    }
    return best;
  }

  /** The rows inside a polygon of places. */
  inside(polygon) {
    const rows = [];
    for (let row = 0; row < this.x.length; row++) {
      if (this.hidden(row)) continue;
      const [x, y] = this.screen(row);
      let within = false;
      for (let i = 0, j = polygon.length - 1; i < polygon.length; j = i++) {
        const [[a, b], [c, d]] = [polygon[i], polygon[j]];
        if ((b > y) !== (d > y) && x < ((c - a) * (y - b)) / (d - b) + a) within = !within;
      }
      if (within) rows.push(row);
    }
    return rows;
  }

  /** Draw at the next frame; without `points`, only what is above them. */
  draw(points = true) {
    this.stale = this.stale || points;
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.paint(); });
  }

  /** Where a point is drawn, in CSS pixels. */
  screen(row) {
    const [width, height] = this.size(), { left, bottom, zoom } = this.view;
    return [PAD + (this.x[row] - left) * zoom * (width - 2 * PAD), height - PAD - (this.y[row] - bottom) * zoom * (height - 2 * PAD)];
  }

  // ------------------------------------------------------------------------------------------ gestures

  down(event) {
    this.awake = true;
    if (!this.x.length || event.button === 2) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.start = this.last = this.at(event);
    const pans = !this.actions.lasso || event.shiftKey || event.button === 1;
    this.gesture = pans ? "pan" : event.pointerType === "touch" && !this.drawing ? "tap" : "lasso";
    this.hover(-1);
  }

  move(event) {
    const here = this.at(event);
    if (!this.start) {
      if (this.actions.hover && event.pointerType !== "touch") this.hover(this.nearest(here), ...here);
      return;
    }
    const [right, down] = [here[0] - this.last[0], here[1] - this.last[1]], [width, height] = this.size();
    if (this.gesture === "pan") {
      const { left, bottom, zoom } = this.view;
      this.show(left - right / zoom / (width - 2 * PAD), bottom + down / zoom / (height - 2 * PAD), zoom);
    } else if (this.gesture === "lasso" && Math.hypot(right, down) > 3) this.lasso.push(here);
    else return;
    this.last = here;
    this.draw(this.gesture === "pan");
  }

  up(event) {
    if (!this.start) return;
    const here = this.at(event), [start, polygon] = [this.start, [this.start, ...this.lasso]];
    this.release();
    if (polygon.length >= 4) this.actions.lasso(this.inside(polygon));
    else if (Math.hypot(here[0] - start[0], here[1] - start[1]) < 4) this.click(this.nearest(here), here);
  }

  release() {
    this.start = null;
    this.lasso = [];
    this.draw(false);
  }

  click(row, here) {
    if (this.actions.click && row >= 0) this.actions.click(row);
    else this.hover(row, ...here); // a finger has no other way to point
  }

  hover(row, x = 0, y = 0) {
    if (this.actions.hover) this.actions.hover(row, x, y);
  }

  // ------------------------------------------------------------------------------------------ drawing

  size() {
    return [this.canvas.clientWidth, this.canvas.clientHeight];
  }

  middle() {
    return this.size().map((side) => side / 2);
  }

  /** Where an event is on the canvas, in CSS pixels from its upper left corner. */
  at(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left - this.canvas.clientLeft, event.clientY - box.top - this.canvas.clientTop];
  }

  show(left, bottom, zoom) {
    const [most, slack] = [1 - 1 / zoom, 0.3 / zoom];
    const bound = (low) => zoom === 1 ? 0 : Math.max(-slack, Math.min(most + slack, low));
    this.view = { left: bound(left), bottom: bound(bottom), zoom };
    this.draw();
  }

  hidden(row) {
    return this.group !== null && !this.styles[this.group[row]];
  }

  radius() {
    const count = this.x.length;
    return (count < 3000 ? 3.4 : count < 20000 ? 2.4 : 1.4) * (this.canvas.clientWidth < 500 ? 0.8 : 1);
  }

  /** A color that a canvas takes, from any that CSS takes: `var(--c3)`, `light-dark(…)`. */
  color(value) {
    this.canvas.style.color = value;
    return getComputedStyle(this.canvas).color;
  }

  paint() {
    const ratio = devicePixelRatio || 1, [width, height] = this.size();
    if (!width || !height) return;
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== wide || this.canvas.height !== high) [this.canvas.width, this.canvas.height] = [wide, high];
    const pen = this.canvas.getContext("2d");
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, wide, high);
    if (this.stale) this.paintPoints(wide, high, ratio);
    this.stale = false;
    pen.drawImage(this.sheet, 0, 0);
    pen.scale(ratio, ratio);
    if (!this.x.length && this.message) {
      pen.fillStyle = this.color("var(--soft)");
      pen.font = `15px ${getComputedStyle(this.canvas).fontFamily}`;
      pen.textAlign = "center";
      pen.fillText(this.message, width / 2, height / 2);
    }
    for (const { rows, color = "var(--ink)", apart = 2.2, width: thick = 1 } of this.rings) {
      pen.strokeStyle = this.color(color);
      pen.lineWidth = thick;
      for (const row of rows) {
        if (row < 0 || row >= this.x.length || this.hidden(row)) continue;
        pen.beginPath();
        pen.arc(...this.screen(row), this.radius() + apart, 0, 2 * Math.PI);
        pen.stroke();
      }
    }
    this.paintNames(pen, width, height);
    if (!this.lasso.length) return;
    pen.strokeStyle = this.color("var(--ink)");
    pen.lineWidth = 1.5;
    pen.beginPath();
    [this.start, ...this.lasso].forEach(([x, y], i) => (i ? pen.lineTo(x, y) : pen.moveTo(x, y)));
    pen.closePath();
    pen.stroke();
  }

  /** Each name above the middle of its points, moved up or down where another stands; left out where that does not help. */
  paintNames(pen, width, height) {
    const high = 16, taken = [];
    pen.font = `600 13px ${getComputedStyle(this.canvas).fontFamily}`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.lineWidth = 4;
    pen.lineJoin = "round";
    for (const { text, rows } of this.names) {
      const name = text.length > 24 ? text.slice(0, 23) + "…" : text, half = pen.measureText(name).width / 2 + 3;
      const places = rows.map((row) => this.screen(row)), across = places.map(([a]) => a).sort((a, b) => a - b);
      const x = Math.max(half, Math.min(width - half, across[across.length >> 1]));
      const free = (y) => y > high / 2 && y < height - high / 2
        && taken.every(([a, b, wide]) => Math.abs(a - x) > half + wide || Math.abs(b - y) > high - 1);
      const heights = places.map(([, b]) => b).sort((a, b) => a - b);
      const up = Math.max(heights[heights.length >> 4] - 10, heights[heights.length >> 1] - 40); // above them, if they are near
      const y = [0, -1, 1, -2, 2, -3, 3].map((step) => up + step * high).find(free);
      if (y === undefined) continue;
      taken.push([x, y, half]);
      pen.strokeStyle = this.color("var(--card)");
      pen.strokeText(name, x, y);
      pen.fillStyle = this.color("var(--ink)");
      pen.fillText(name, x, y);
    }
  }

  /** Each style's circle is drawn once and stamped: 100 000 points take a moment. */
  paintPoints(wide, high, ratio) {
    [this.sheet.width, this.sheet.height] = [wide, high]; // which also clears it
    const pen = this.sheet.getContext("2d");
    const rows = this.styles.map(() => []);
    for (let row = 0; row < this.x.length; row++) if (!this.hidden(row)) rows[this.group ? this.group[row] : 0].push(row);
    this.styles.forEach(({ color, alpha = 1, radius = this.radius() }, place) => {
      if (!rows[place].length) return;
      const stamp = document.createElement("canvas"), half = Math.ceil(radius * ratio) + 1;
      stamp.width = stamp.height = 2 * half;
      const ink = stamp.getContext("2d");
      ink.fillStyle = this.color(color);
      ink.arc(half, half, radius * ratio, 0, 2 * Math.PI);
      ink.fill();
      pen.globalAlpha = alpha;
      for (const row of rows[place]) {
        const [x, y] = this.screen(row);
        if (x > -half && y > -half && x < wide + half && y < high + half) pen.drawImage(stamp, x * ratio - half, y * ratio - half);
      }
    });
  }
}

/** Values as shares of their range. */
function shares(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return Float32Array.from(values, (value) => (high > low ? (value - low) / (high - low) : 0.5));
}

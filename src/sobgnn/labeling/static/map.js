"use strict";
// All points on a canvas: colors by label or guess, a lasso, zoom. Coordinates and marks come as plain arrays.
const MOVE_MS = 800; // from one layout to the next
class PointMap {
  constructor(canvas, onSelect, onOpen) {
    this.canvas = canvas;
    this.onSelect = onSelect;
    this.onOpen = onOpen;
    this.place = null;
    this.target = null; // where points are moving to
    this.given = null;
    this.guess = null;
    this.sure = null;
    this.colors = new Map();
    this.current = -1;
    this.blind = new Set(); // rows of the audit, whose guess is not to be seen
    this.selected = new Set();
    this.lasso = [];
    this.view = { x: 0, y: 0, scale: 1 };
    this.pending = false;
    this.points = document.createElement("canvas"); // all points as they were last drawn: a lasso moves above them
    this.stale = true;
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.up(event));
    canvas.addEventListener("pointercancel", () => { this.lasso = []; this.start = null; this.draw(); });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1.25 : 0.8, this.at(event));
    }, { passive: false });
    new ResizeObserver(() => this.resize()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }
  resize() {
    const ratio = devicePixelRatio || 1;
    const width = Math.round(this.canvas.clientWidth * ratio), height = Math.round(this.canvas.clientHeight * ratio);
    if (width && height && (width !== this.canvas.width || height !== this.canvas.height)) {
      this.canvas.width = width;
      this.canvas.height = height;
      this.fit();
    }
  }
  /** Take new coordinates; points move there, if there were others. */
  setPlace(buffer) {
    const [old, view, place] = [this.place, this.view, new Float32Array(buffer)];
    this.place = this.target = place;
    this.fit();
    if (!old || old.length !== place.length || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    // Where they were on the screen, in the coordinates of the new view.
    const from = old.map((value, i) => (value * view.scale + (i % 2 ? view.y - this.view.y : view.x - this.view.x)) / this.view.scale);
    const began = performance.now();
    const step = (now) => {
      if (this.target !== place) return; // others came meanwhile
      const share = this.start ? 1 : Math.min(1, Math.max(0, (now - began) / MOVE_MS)); // a lasso is around still points
      this.place = share < 1 ? from.map((value, i) => value + share * share * (3 - 2 * share) * (place[i] - value)) : place;
      this.draw();
      if (share < 1) requestAnimationFrame(step);
    };
    this.place = from;
    requestAnimationFrame(step);
  }
  setMarks(buffer) {
    const count = buffer.byteLength / 5;
    this.given = new Int16Array(buffer, 0, count);
    this.guess = new Int16Array(buffer, 2 * count, count);
    this.sure = new Uint8Array(buffer, 4 * count, count);
    this.draw();
  }
  fit() {
    if (!this.place || !this.place.length) return;
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    for (let i = 0; i < this.place.length; i += 2) {
      x0 = Math.min(x0, this.place[i]); x1 = Math.max(x1, this.place[i]);
      y0 = Math.min(y0, this.place[i + 1]); y1 = Math.max(y1, this.place[i + 1]);
    }
    const scale = 0.94 * Math.min(this.canvas.width / Math.max(x1 - x0, 1e-6), this.canvas.height / Math.max(y1 - y0, 1e-6));
    this.view = {
      scale, x: this.canvas.width / 2 - scale * (x0 + x1) / 2, y: this.canvas.height / 2 - scale * (y0 + y1) / 2,
    };
    this.draw();
  }
  zoom(factor, around) {
    const [x, y] = around || [this.canvas.width / 2, this.canvas.height / 2];
    this.view = {
      scale: this.view.scale * factor, x: x - factor * (x - this.view.x), y: y - factor * (y - this.view.y),
    };
    this.draw();
  }
  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const ratio = this.canvas.width / box.width;
    return [(event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio];
  }
  screen(row) {
    return [this.place[2 * row] * this.view.scale + this.view.x, this.place[2 * row + 1] * this.view.scale + this.view.y];
  }
  down(event) {
    if (!this.place || event.button === 2) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.start = this.at(event);
    this.panning = event.shiftKey || event.button === 1;
    this.lasso = this.panning ? [] : [this.start];
  }
  move(event) {
    if (!this.start) return;
    const here = this.at(event);
    if (this.panning) {
      this.view.x += here[0] - this.start[0];
      this.view.y += here[1] - this.start[1];
      this.start = here;
    } else {
      const last = this.lasso[this.lasso.length - 1];
      if (Math.hypot(here[0] - last[0], here[1] - last[1]) > 3) this.lasso.push(here);
    }
    this.draw(this.panning);
  }
  up(event) {
    if (!this.start) return;
    const here = this.at(event);
    const [polygon, panned] = [this.lasso, this.panning];
    this.start = null;
    this.lasso = [];
    if (!panned && polygon.length >= 4) this.onSelect(this.inside(polygon));
    else if (!panned) {
      const row = this.nearest(here);
      if (row >= 0) this.onOpen(row);
    }
    this.draw();
  }
  nearest(here) {
    let best = -1, distance = 15 * (devicePixelRatio || 1);
    for (let row = 0; row < this.place.length / 2; row++) {
      const [x, y] = this.screen(row);
      const apart = Math.hypot(x - here[0], y - here[1]);
      if (apart < distance) { best = row; distance = apart; }
    }
    return best;
  }
  inside(polygon) {
    const xs = polygon.map((p) => p[0]), ys = polygon.map((p) => p[1]);
    const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const rows = [];
    for (let row = 0; row < this.place.length / 2; row++) {
      const [x, y] = this.screen(row);
      if (x < x0 || x > x1 || y < y0 || y > y1) continue;
      let within = false;
      for (let i = 0, j = polygon.length - 1; i < polygon.length; j = i++) {
        const crosses = (ys[i] > y) !== (ys[j] > y);
        if (crosses && x < ((xs[j] - xs[i]) * (y - ys[i])) / (ys[j] - ys[i]) + xs[i]) within = !within;
      }
      if (within) rows.push(row);
    }
    return rows;
  }
  draw(points = true) {
    this.stale = this.stale || points;
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.paint(); });
  }
  paint() {
    const brush = this.canvas.getContext("2d");
    const style = getComputedStyle(this.canvas);
    const ink = style.getPropertyValue("--ink").trim(), soft = style.getPropertyValue("--soft").trim();
    brush.clearRect(0, 0, this.canvas.width, this.canvas.height);
    if (!this.place) return;
    const count = this.place.length / 2;
    const size = (count > 20000 ? 2 : count > 3000 ? 3 : 5) * (devicePixelRatio || 1);
    if (this.stale) this.paintPoints(size, ink, soft);
    this.stale = false;
    if (this.points.width && this.points.height) brush.drawImage(this.points, 0, 0);
    brush.strokeStyle = ink;
    brush.lineWidth = 2;
    // Not around a row of the audit: the colors of its neighbors would give the guess away.
    if (this.current >= 0 && this.current < count && !this.blind.has(this.current)) {
      const [x, y] = this.screen(this.current);
      brush.beginPath();
      brush.arc(x, y, 3 + size, 0, 2 * Math.PI);
      brush.stroke();
    }
    if (this.lasso.length > 1) {
      brush.beginPath();
      this.lasso.forEach(([x, y], i) => (i ? brush.lineTo(x, y) : brush.moveTo(x, y)));
      brush.closePath();
      brush.stroke();
    }
  }
  paintPoints(size, ink, soft) {
    this.points.width = this.canvas.width; // which also clears it
    this.points.height = this.canvas.height;
    const brush = this.points.getContext("2d");
    const groups = new Map();
    for (let row = 0; row < this.place.length / 2; row++) {
      const labeled = this.given && this.given[row] >= 0;
      const code = labeled ? this.given[row] : this.guess && !this.blind.has(row) ? this.guess[row] : -1;
      const strength = labeled ? 4 : code < 0 ? 1 : this.sure[row] > 200 ? 2 : 1;
      const key = 8 * (code + 1) + strength;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(row);
    }
    for (const key of [...groups.keys()].sort((a, b) => (a % 8) - (b % 8))) {
      const code = Math.floor(key / 8) - 1, strength = key % 8;
      brush.fillStyle = this.colors.get(code) || soft;
      brush.globalAlpha = strength === 4 ? 1 : strength === 2 ? 0.55 : 0.3;
      const side = strength === 4 ? size + 2 : size;
      for (const row of groups.get(key)) {
        const [x, y] = this.screen(row);
        brush.fillRect(x - side / 2, y - side / 2, side, side);
      }
    }
    brush.globalAlpha = 1;
    brush.strokeStyle = ink;
    brush.lineWidth = 2;
    for (const row of this.selected) {
      const [x, y] = this.screen(row);
      brush.strokeRect(x - size / 2 - 1, y - size / 2 - 1, size + 2, size + 2);
    }
  }
}

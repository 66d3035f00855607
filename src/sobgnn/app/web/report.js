"use strict";
// The report: its map with views and legend, its charts, the theme, and copying tables.
(() => {
  const page = JSON.parse(document.getElementById("page-data").textContent), points = page.map, UNKNOWN = 65535;
  const $ = (id) => document.getElementById(id);
  const root = document.documentElement, tip = $("tip"), query = new URLSearchParams(location.search);

  function unpack(text, wide) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return wide ? Uint16Array.from({ length: bytes.length / 2 }, (_, i) => bytes[2 * i] + 256 * bytes[2 * i + 1]) : bytes;
  }
  const [x, y, predicted, truth] = ["x", "y", "predicted", "truth"].map((name) => unpack(points[name], true));
  const [confidence, given] = ["confidence", "given"].map((name) => unpack(points[name], false));
  const count = x.length, labeled = [...given.keys()].filter((row) => given[row]);
  const some = labeled.length > 0 && labeled.length < count;
  const hidden = new Set();
  // With more classes than colors that are easy to tell apart, the map has the names: most frequent first.
  const byClass = points.classes.map(() => []), names = [];
  predicted.forEach((code, row) => byClass[code].push(row));
  if (byClass.filter((rows) => rows.length).length > 10) {
    byClass.forEach((rows, code) => { if (rows.length) names.push({ code, text: points.classes[code], rows }); });
    names.sort((a, b) => b.rows.length - a.rows.length);
  }
  let view = "class", rings = some && labeled.length <= 600;
  const map = new PointMap($("map"), { hover: showTip });

  // ------------------------------------------------------------------------------------------ views

  const SHADES = 21; // from unsure to sure
  function shade(number) {
    const share = number / (SHADES - 1), middle = "light-dark(#cfcbc3, #5a5f68)";
    const [from, to, part] = share < 0.5 ? ["var(--bad)", middle, 2 * share] : [middle, "var(--accent)", 2 * share - 1];
    return `color-mix(in srgb, ${to} ${Math.round(100 * part)}%, ${from})`;
  }
  const LOOKS = {
    gray: () => [null, [{ color: "var(--faint)", alpha: 0.35 }]],
    class: () => [predicted, points.colors.map((color) => ({ color, alpha: count < 20000 ? 0.82 : 0.6 }))],
    confidence: () => [
      Uint16Array.from(confidence, (value) =>
        Math.round((SHADES - 1) * Math.max(0, Math.min(1, (value / 255 - points.floor) / (1 - points.floor))))),
      Array.from({ length: SHADES }, (_, i) => ({ color: shade(i), alpha: count < 20000 ? 0.82 : 0.6 })),
    ],
    wrong: () => [
      Uint16Array.from(predicted, (code, row) => +(truth[row] !== UNKNOWN && truth[row] !== code)),
      [{ color: "var(--faint)", alpha: 0.3 }, { color: "var(--bad)" }],
    ],
  };

  function show() {
    const [group, styles] = LOOKS[points.gray ? "gray" : view]();
    const seen = hidden.size ? Uint16Array.from(group || predicted, (one, row) => (hidden.has(predicted[row]) ? UNKNOWN : one)) : group;
    map.rings = rings && view === "class" && !points.gray ? [{ rows: labeled }] : [];
    map.names = view === "class" && !points.gray ? names.filter(({ code }) => !hidden.has(code)) : [];
    map.setStyles(seen, styles);
  }

  function key(name, color, change, pressed = true) {
    const button = document.createElement("button"), dot = document.createElement("i");
    button.type = "button";
    if (color) dot.style.background = color;
    else dot.style.border = "1px solid var(--ink)";
    button.append(dot, name);
    if (!change) button.disabled = true;
    else {
      button.setAttribute("aria-pressed", pressed);
      button.addEventListener("click", () => { button.setAttribute("aria-pressed", change()); show(); });
    }
    return button;
  }

  /** The keys are made once for each view: a click changes one, and leaves the keyboard's focus on it. */
  function legend() {
    const keys = [];
    if (view === "class") {
      const present = new Set(predicted);
      points.classes.forEach((name, code) => {
        const change = () => hidden.delete(code) || !hidden.add(code);
        if (present.has(code)) keys.push(key(name, points.colors[code], change, !hidden.has(code)));
      });
      if (some) keys.push(key("label given", "", () => (rings = !rings), rings));
    } else if (view === "confidence") keys.push(key("unsure", shade(0)), key("sure", shade(SHADES - 1)));
    else keys.push(key("predicted wrong", "var(--bad)"), key("other points", "var(--faint)"));
    $("legend").replaceChildren(...(points.gray ? [] : keys));
  }

  const views = [...document.querySelectorAll("[data-view]")];
  function press(button) {
    if (button) view = button.dataset.view;
    for (const other of views) other.setAttribute("aria-pressed", other === button);
    legend();
    show();
  }

  // ------------------------------------------------------------------------------------------ the point under the mouse

  // All pictures are on one sheet; a point's is cut out and enlarged.
  const sheet = points.pictures ? new Image() : null, missing = new Set(points.pictures ? points.pictures.missing : []);
  if (sheet) sheet.src = points.pictures.image;
  function picture(row) {
    const { side, columns } = points.pictures, part = document.createElement("canvas"), pen = part.getContext("2d");
    part.width = part.height = 96;
    pen.imageSmoothingEnabled = side > 32;
    pen.drawImage(sheet, (row % columns) * side, Math.floor(row / columns) * side, side, side, 0, 0, 96, 96);
    return part;
  }

  function showTip(row, a, b) {
    tip.hidden = row < 0;
    if (row < 0) return;
    const add = (tag, text) => { const part = document.createElement(tag); part.textContent = text; tip.append(part); };
    tip.replaceChildren();
    const number = points.row ? points.row[row] : row, name = points.classes[predicted[row]];
    add("b", points.names ? points.names[row] + ", row " + number : "row " + number);
    add("div", given[row] ? "label given: " + name : "predicted " + name + ", probability " + (confidence[row] / 255).toFixed(2));
    if (truth[row] !== UNKNOWN && !given[row]) add("div", "true label " + points.classes[truth[row]]);
    if (points.words) add("div", points.words[row]);
    if (sheet && sheet.complete && !missing.has(row)) tip.append(picture(row));
    const box = map.canvas.getBoundingClientRect();
    tip.style.left = Math.max(0, Math.min(a + 14, box.width - tip.offsetWidth)) + "px";
    tip.style.top = (b + 16 + tip.offsetHeight > box.height ? Math.max(0, b - tip.offsetHeight - 10) : b + 16) + "px";
  }

  // ------------------------------------------------------------------------------------------ the rest of the page

  function setTheme(theme) {
    root.style.colorScheme = root.dataset.theme = theme;
    $("theme").textContent = theme === "dark" ? "Light" : "Dark";
    map.draw();
  }

  function copy(button) {
    const done = () => { button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy table"; }, 1500); };
    const fallback = () => {
      const area = document.createElement("textarea");
      area.value = button.dataset.copy;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
      done();
    };
    if (navigator.clipboard) navigator.clipboard.writeText(button.dataset.copy).then(done, fallback);
    else fallback();
  }

  try {
    map.setPlace(x, y);
    const asked = matchMedia("(prefers-color-scheme: dark)"), wanted = query.get("theme"); // report.html?theme=dark&view=wrong
    setTheme(wanted === "dark" || wanted === "light" ? wanted : asked.matches ? "dark" : "light");
    asked.addEventListener("change", () => setTheme(asked.matches ? "dark" : "light"));
    $("theme").addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
    press(views.find((button) => button.dataset.view === query.get("view")) ?? views[0]);
    for (const button of views) button.addEventListener("click", () => press(button));
    for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => copy(button));
    $("in").addEventListener("click", () => map.zoom(1.5));
    $("out").addEventListener("click", () => map.zoom(1 / 1.5));
    $("all").addEventListener("click", () => map.reset());
    for (const button of document.querySelectorAll(".more")) {
      button.addEventListener("click", () => button.parentElement.classList.add("all"));
    }
    if (matchMedia("(max-width: 820px)").matches) {
      for (const part of document.querySelectorAll(".fold")) part.open = false;
      const unfold = () => document.getElementById(location.hash.slice(1))?.querySelector(".fold")?.setAttribute("open", "");
      addEventListener("hashchange", unfold);
      unfold();
    }
    for (const place of document.querySelectorAll("[data-chart]")) {
      const [name, number] = place.dataset.chart.split(" "), chart = page.charts[name][number];
      const draw = () => (chart.series ? drawLines : drawHistogram)(place, chart);
      let width = place.clientWidth;
      draw();
      new ResizeObserver(() => { if (width !== place.clientWidth) { width = place.clientWidth; draw(); } }).observe(place);
    }
    root.dataset.ready = "yes";
  } catch (error) {
    root.dataset.ready = "failed: " + error;
  }
})();

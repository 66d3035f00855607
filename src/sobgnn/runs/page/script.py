"""The report's script: the map, its views and legend, the theme, and copying tables."""

from __future__ import annotations

SCRIPT = r"""
'use strict';
(() => {
const page = JSON.parse(document.getElementById('page-data').textContent);
const root = document.documentElement, canvas = document.getElementById('map'), tip = document.getElementById('tip');
const css = name => getComputedStyle(root).getPropertyValue(name).trim();
const dark = () => root.dataset.theme === 'dark';
const points = page.map, UNKNOWN = 65535;

function unpack(text, kind) {
  const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
  return kind === 16 ? Uint16Array.from({length: bytes.length / 2}, (_, i) => bytes[2 * i] + 256 * bytes[2 * i + 1])
                     : bytes;
}
const x = unpack(points.x, 16), y = unpack(points.y, 16), predicted = unpack(points.predicted, 16);
const truth = unpack(points.true, 16), confidence = unpack(points.confidence, 8), given = unpack(points.given, 8);
const count = x.length, hidden = new Set();
const labels = given.reduce((sum, one) => sum + one, 0);
let view = 'class', rings = labels > 0 && labels < count && labels <= 600;
let zoom = 1, left = 0, top = 0;  // the shown part of the unit box: [left, left + 1 / zoom]

const mix = (from, to, share) => '#' + [1, 3, 5].map(i => Math.round(parseInt(from.slice(i, i + 2), 16) * (1 - share)
  + parseInt(to.slice(i, i + 2), 16) * share).toString(16).padStart(2, '0')).join('');

function colorOf(i, shades) {
  if (page.gray) return shades.gray;
  if (view === 'class') return shades.classes[predicted[i]];
  if (view === 'wrong') return truth[i] !== UNKNOWN && truth[i] !== predicted[i] ? shades.bad : shades.line;
  const share = Math.max(0, Math.min(1, (confidence[i] / 255 - points.floor) / (1 - points.floor)));
  return shades.ramp[Math.round(20 * share)];
}

function place(i, box) {
  const pad = 14;  // both axes fill the box: far distances mean little, so their ratio does not count
  return [pad + (x[i] / 65535 - left) * zoom * (box.width - 2 * pad),
          pad + (y[i] / 65535 - top) * zoom * (box.height - 2 * pad)];
}

function draw() {
  const box = canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(box.width * ratio); canvas.height = Math.round(box.height * ratio);
  const pen = canvas.getContext('2d');
  pen.scale(ratio, ratio);
  const middle = dark() ? '#5a5f68' : '#cfcbc3';
  const shades = {classes: page.colors.map(pair => pair[dark() ? 1 : 0]), bad: css('--bad'), line: css('--faint'),
    gray: css('--faint'), ramp: Array.from({length: 21}, (_, i) =>
      i < 10 ? mix(css('--bad'), middle, i / 10) : mix(middle, css('--accent'), (i - 10) / 10))};
  const size = (count < 3000 ? 3.4 : count < 20000 ? 2.4 : 1.3) * (box.width < 500 ? .8 : 1);
  const wrong = view === 'wrong';
  for (const layer of wrong ? [0, 1] : [0]) for (let i = 0; i < count; i++) {
    if (hidden.has(predicted[i])) continue;
    const bad = wrong && truth[i] !== UNKNOWN && truth[i] !== predicted[i];
    if (wrong && bad !== (layer === 1)) continue;
    const [a, b] = place(i, box);
    if (a < -5 || b < -5 || a > box.width + 5 || b > box.height + 5) continue;
    pen.globalAlpha = page.gray ? .35 : wrong && !bad ? .3 : count < 20000 ? .82 : .6;
    pen.fillStyle = colorOf(i, shades);
    pen.beginPath(); pen.arc(a, b, size, 0, 6.3); pen.fill();
  }
  if (rings && view === 'class' && !page.gray) {
    pen.globalAlpha = .65; pen.strokeStyle = css('--ink'); pen.lineWidth = 1;
    for (let i = 0; i < count; i++) if (given[i] && !hidden.has(predicted[i])) {
      const [a, b] = place(i, box);
      pen.beginPath(); pen.arc(a, b, size + 2.2, 0, 6.3); pen.stroke();
    }
  }
  legend(shades);
}

function legend(shades) {
  const keys = document.getElementById('legend');
  keys.replaceChildren();
  const add = (name, color, pressed, act, ring) => {
    const key = document.createElement('button'), dot = document.createElement('i');
    if (ring) { dot.style.border = '1px solid ' + color; } else dot.style.background = color;
    key.append(dot, name); key.setAttribute('aria-pressed', pressed);
    if (act) key.addEventListener('click', () => { act(); draw(); }); else key.disabled = true;
    keys.append(key);
  };
  if (page.gray) return;
  if (view === 'class') points.classes.forEach((name, code) => {
    if (predicted.includes(code)) add(name, shades.classes[code], !hidden.has(code),
      () => { if (!hidden.delete(code)) hidden.add(code); });
  });
  else if (view === 'confidence') { add('unsure', shades.ramp[0], true); add('sure', shades.ramp[20], true); }
  else { add('predicted wrong', shades.bad, true); add('other points', shades.line, true); }
  if (view === 'class' && labels && labels < count)
    add('label given', css('--ink'), rings, () => { rings = !rings; }, true);
}

function nearest(event) {
  const box = canvas.getBoundingClientRect(), a = event.clientX - box.left, b = event.clientY - box.top;
  let best = -1, least = 14 * 14;
  for (let i = 0; i < count; i++) {
    if (hidden.has(predicted[i])) continue;
    const [c, d] = place(i, box), apart = (a - c) ** 2 + (b - d) ** 2;
    if (apart < least) { least = apart; best = i; }
  }
  return [best, a, b, box];
}

// All pictures are on one sheet; a point's is cut out and enlarged.
const sheet = points.pictures ? new Image() : null, unseen = new Set(points.pictures ? points.pictures.missing : []);
if (sheet) sheet.src = points.pictures.image;
function picture(i) {
  const {side, columns} = points.pictures, part = document.createElement('canvas');
  part.width = part.height = 96;
  const across = (i % columns) * side, down = Math.floor(i / columns) * side;
  part.getContext('2d').drawImage(sheet, across, down, side, side, 0, 0, 96, 96);
  return part;
}

function tell(event) {
  const [i, a, b, box] = nearest(event);
  tip.hidden = i < 0;
  if (i < 0) return;
  const add = (tag, text) => { const part = document.createElement(tag); part.textContent = text; tip.append(part); };
  tip.replaceChildren();
  const row = points.row ? points.row[i] : i;
  add('b', points.names ? points.names[i] + ' (row ' + row + ')' : 'row ' + row);
  add('div', given[i] ? 'label given: ' + points.classes[predicted[i]]
    : 'predicted ' + points.classes[predicted[i]] + ', probability ' + (confidence[i] / 255).toFixed(2));
  if (truth[i] !== UNKNOWN && !given[i]) add('div', 'true label ' + points.classes[truth[i]]);
  if (points.words) add('div', points.words[i]);
  if (sheet && sheet.complete && !unseen.has(i)) tip.append(picture(i));
  tip.style.left = Math.max(0, Math.min(a + 14, box.width - tip.offsetWidth)) + 'px';
  tip.style.top = (b + 16 + tip.offsetHeight > box.height ? Math.max(0, b - tip.offsetHeight - 10) : b + 16) + 'px';
}

function bound() {
  const most = 1 - 1 / zoom, slack = .3 / zoom;
  left = Math.max(-slack, Math.min(most + slack, left)); top = Math.max(-slack, Math.min(most + slack, top));
}
let held = null;
canvas.addEventListener('pointerdown', event => {
  held = [event.clientX, event.clientY]; canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener('pointerup', () => { held = null; });
canvas.addEventListener('pointerleave', () => { tip.hidden = true; });
canvas.addEventListener('pointermove', event => {
  if (!held) { tell(event); return; }
  const box = canvas.getBoundingClientRect();
  left -= (event.clientX - held[0]) / box.width / zoom; top -= (event.clientY - held[1]) / box.height / zoom;
  held = [event.clientX, event.clientY]; tip.hidden = true; bound(); draw();
});
canvas.addEventListener('wheel', event => {
  event.preventDefault();
  const box = canvas.getBoundingClientRect();
  const a = (event.clientX - box.left) / box.width, b = (event.clientY - box.top) / box.height;
  const next = Math.max(1, Math.min(60, zoom * Math.exp(-event.deltaY / 400)));
  left += a / zoom - a / next; top += b / zoom - b / next; zoom = next;
  bound(); draw();
}, {passive: false});
canvas.addEventListener('dblclick', () => { zoom = 1; left = top = 0; draw(); });
new ResizeObserver(draw).observe(canvas);

function setTheme(theme) {
  root.dataset.theme = theme;
  document.getElementById('theme').textContent = theme === 'dark' ? 'Light' : 'Dark';
  draw();
}

function copy(button) {
  const rows = [...document.querySelectorAll('#' + button.dataset.copy + ' tr')].map(row =>
    [...row.cells].map(cell => cell.textContent.trim().replace(/[\t\n\r]/g, ' ')).join('\t'));
  const text = rows.join('\n');
  const done = () => { button.textContent = 'Copied'; setTimeout(() => { button.textContent = 'Copy table'; }, 1500); };
  const fallback = () => {
    const area = document.createElement('textarea');
    area.value = text; document.body.append(area); area.select(); document.execCommand('copy'); area.remove(); done();
  };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, fallback); else fallback();
}

document.getElementById('theme').addEventListener('click', () => setTheme(dark() ? 'light' : 'dark'));
const views = [...document.querySelectorAll('[data-view]')];
function press(button) {
  if (!button) return;
  view = button.dataset.view;
  for (const other of views) other.setAttribute('aria-pressed', other === button);
}
for (const button of views) button.addEventListener('click', () => { press(button); draw(); });
for (const button of document.querySelectorAll('[data-copy]')) button.addEventListener('click', () => copy(button));
const asked = matchMedia('(prefers-color-scheme: dark)');
asked.addEventListener('change', () => setTheme(asked.matches ? 'dark' : 'light'));
// report.html?theme=dark&view=confidence opens as asked.
const query = new URLSearchParams(location.search), wanted = query.get('theme');
press(views.find(button => button.dataset.view === query.get('view')) ?? views[0]);
try {
  setTheme(wanted === 'dark' || wanted === 'light' ? wanted : asked.matches ? 'dark' : 'light');
  root.dataset.ready = 'yes';
} catch (error) { root.dataset.ready = 'failed: ' + error; }
})();
"""

"""The report's page around its figures: markup, style and the script that draws them."""

from __future__ import annotations

STYLE = """
:root {
  --paper: #fbfaf8; --card: #ffffff; --ink: #23262b; --soft: #5d636c; --faint: #8d939c; --line: #e5e2dc;
  --accent: #2f6690; --good: #3f9268; --bad: #b64a5e; --shade: rgba(40, 40, 30, .05);
}
:root[data-theme="dark"] {
  --paper: #16181c; --card: #1d2025; --ink: #e6e4df; --soft: #a9adb4; --faint: #7c818a; --line: #2e323a;
  --accent: #8bb8dc; --good: #6cc298; --bad: #e8849a; --shade: rgba(0, 0, 0, .25);
}
* { box-sizing: border-box; }
html { background: var(--paper); color: var(--ink); }
body {
  margin: 0 auto; max-width: 1120px; padding: 44px 36px 72px; line-height: 1.55; font-size: 15.5px;
  font-family: ui-sans-serif, -apple-system, "Segoe UI", "Inter", "Noto Sans", "DejaVu Sans", sans-serif;
}
h1, h2, .lead, .tile b { font-family: "Iowan Old Style", "Palatino Linotype", Palatino, "Source Serif 4", "Noto Serif",
  "DejaVu Serif", Georgia, serif; font-weight: 500; }
header { display: flex; justify-content: space-between; align-items: baseline; gap: 24px; }
h1 { font-size: 34px; line-height: 1.2; margin: 2px 0 10px; overflow-wrap: anywhere; }
.kicker { color: var(--faint); font-size: 12.5px; letter-spacing: .09em; text-transform: uppercase; }
.lead { font-size: 19px; color: var(--soft); max-width: 46em; margin: 0 0 26px; overflow-wrap: anywhere; }
h2 { font-size: 22px; margin: 46px 0 4px; }
section > p { color: var(--soft); max-width: 47em; margin: 4px 0 14px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 14px; }
.tile, figure, .scroll { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  box-shadow: 0 1px 3px var(--shade); }
.tile { padding: 14px 18px 13px; }
.tile b { display: block; font-size: 28px; line-height: 1.25; font-variant-numeric: lining-nums; }
.tile span { color: var(--faint); font-size: 13px; }
.tile.first b { color: var(--accent); }
figure { margin: 0; padding: 16px 16px 12px; min-width: 0; }
figcaption { color: var(--soft); font-size: 13.5px; padding: 0 4px 6px; }
figcaption b { color: var(--ink); font-weight: 600; }
.plot { width: 100%; }
.pair { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 14px; }
.triple { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 14px; }
.wide-left { display: grid; grid-template-columns: minmax(0, 3fr) minmax(0, 2fr); gap: 14px; }
button { font: inherit; font-size: 13px; color: var(--soft); background: var(--card); border: 1px solid var(--line);
  border-radius: 7px; padding: 4px 12px; cursor: pointer; }
button:hover, button[aria-pressed="true"] { color: var(--ink); border-color: var(--faint); }
button:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.bar { display: flex; gap: 8px; align-items: center; margin-bottom: 8px; flex-wrap: wrap; }
.bar .grow { flex: 1; color: var(--faint); font-size: 13px; }
.scroll { overflow: auto; max-height: 460px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th { position: sticky; top: 0; background: var(--card); color: var(--faint); font-weight: 500; text-align: left;
  font-size: 12.5px; }
th, td { padding: 6px 14px; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
tbody tr:last-child td { border-bottom: 0; }
td.n, th.n { text-align: right; white-space: nowrap; }
.narrow { max-width: 680px; } sup { line-height: 0; }
.meter { display: inline-block; height: 7px; border-radius: 4px; background: var(--accent); vertical-align: middle; }
dl { display: grid; grid-template-columns: auto 1fr; gap: 3px 22px; margin: 0; font-size: 14px; }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
details { margin-top: 46px; color: var(--soft); } summary { cursor: pointer; } details dl { padding: 14px 4px; }
.notice { border-left: 3px solid var(--bad); padding: 2px 14px; color: var(--soft); }
footer { color: var(--faint); font-size: 13px; margin-top: 30px; }
@media (max-width: 820px) { .pair, .triple, .wide-left { grid-template-columns: minmax(0, 1fr); }
  body { padding: 26px 16px 48px; } }
@media print { button { display: none; } }
"""

SCRIPT = """
'use strict';
const page = JSON.parse(document.getElementById('page-data').textContent);
const root = document.documentElement;
const css = name => getComputedStyle(root).getPropertyValue(name).trim();
const dark = () => root.dataset.theme === 'dark';

const mix = (from, to, share) => '#' + [1, 3, 5].map(i => Math.round(parseInt(from.slice(i, i + 2), 16) * (1 - share)
  + parseInt(to.slice(i, i + 2), 16) * share).toString(16).padStart(2, '0')).join('');

// Colors are written as '@name' or '@class:3', so that one figure serves light and dark.
function resolve(value) {
  if (typeof value === 'string' && value[0] === '@') {
    if (value.startsWith('@class:')) return page.colors[+value.slice(7)][dark() ? 1 : 0];
    if (value === '@ramp') return [[0, 0], [.004, .14], [.1, .4], [1, 1]].map(
      ([at, share]) => [at, mix(css('--card'), css('--accent'), share)]);  // mistakes are few: show the small shares
    if (value === '@confidence') return dark() ? [[0, '#e8849a'], [.5, '#5a5f68'], [1, '#8bb8dc']]
                                               : [[0, '#b64a5e'], [.5, '#cfcbc3'], [1, '#2f6690']];
    return css('--' + value.slice(1));
  }
  if (Array.isArray(value)) return value.length && typeof value[0] === 'number' ? value : value.map(resolve);
  if (value && typeof value === 'object') {
    if ('bdata' in value) return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, resolve(item)]));
  }
  return value;
}

function base(layout) {
  const axis = {gridcolor: css('--line'), zerolinecolor: css('--line'), linecolor: css('--line'), automargin: true,
                tickfont: {size: 12, color: css('--soft')}, title: {font: {size: 12.5, color: css('--soft')}}};
  const merged = {paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)', margin: {l: 46, r: 12, t: 8, b: 40},
    font: {family: getComputedStyle(document.body).fontFamily, color: css('--ink'), size: 13},
    hoverlabel: {bgcolor: css('--card'), bordercolor: css('--line'), align: 'left', font: {color: css('--ink')}},
    legend: {font: {size: 12.5, color: css('--soft')}}, ...layout};
  for (const name of ['xaxis', 'yaxis']) {
    const own = layout[name] || {};
    merged[name] = {...axis, ...own, title: {...axis.title, ...(own.title || {})}};
  }
  return merged;
}

const gl = (() => { try { return !!document.createElement('canvas').getContext('webgl'); } catch { return false; } })();
let view = 'class';

function mapTraces(traces) {
  if (view === 'class') return traces;
  return traces.map(trace => {
    if (!trace.meta) return {...trace, visible: 'legendonly'};
    const marker = {...trace.marker};
    if (view === 'confidence') Object.assign(marker,
      {color: trace.meta.confidence, colorscale: '@confidence', cmin: page.floor, cmax: 1});
    else Object.assign(marker,
      {color: trace.meta.wrong.map(w => resolve(w ? '@bad' : '@line')),
       opacity: trace.meta.wrong.map(w => w ? 1 : .6)});
    return {...trace, marker};
  });
}

function draw(name) {
  const figure = page.figures[name], place = document.getElementById(name);
  let data = resolve(name === 'map' ? mapTraces(figure.data) : figure.data);
  if (!gl) data = data.map(trace => trace.type === 'scattergl' ? {...trace, type: 'scatter'} : trace);
  return Plotly.react(place, data, base(resolve(figure.layout)),
    {responsive: true, displayModeBar: false, scrollZoom: name === 'map'});
}

function setTheme(theme) {
  root.dataset.theme = theme;
  document.getElementById('theme').textContent = theme === 'dark' ? 'Light' : 'Dark';
  return Promise.all(Object.keys(page.figures).map(draw));
}

function copy(button) {
  const rows = [...document.querySelectorAll('#next tr')].map(row =>
    [...row.cells].map(cell => (cell.dataset.copy ?? cell.textContent).replace(/[\\t\\n\\r]/g, ' ')).join('\\t'));
  const text = rows.join('\\n');
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
  view = button.dataset.view;
  for (const other of views) other.setAttribute('aria-pressed', other === button);
}
for (const button of views) button.addEventListener('click', () => { press(button); draw('map'); });
document.getElementById('copy')?.addEventListener('click', event => copy(event.target));
const asked = matchMedia('(prefers-color-scheme: dark)');
asked.addEventListener('change', () => setTheme(asked.matches ? 'dark' : 'light'));
// report.html?theme=dark&view=confidence opens as asked.
const query = new URLSearchParams(location.search), wanted = query.get('theme');
press(views.find(button => button.dataset.view === query.get('view')) ?? views[0]);
setTheme(wanted === 'dark' || wanted === 'light' ? wanted : asked.matches ? 'dark' : 'light').then(
  () => { root.dataset.ready = 'yes'; }, error => { root.dataset.ready = 'failed: ' + error; });
"""

# The policy keeps the page offline: it may run what it carries, and load nothing. plotly.js compiles WebGL
# drawing code, hence unsafe-eval.
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval';
 style-src 'unsafe-inline'; img-src data: blob:">
<title>@@title@@</title>
<style>@@style@@</style>
</head>
<body>
@@body@@
<script>@@plotly@@</script>
<script type="application/json" id="page-data">@@data@@</script>
<script>@@script@@</script>
</body>
</html>
"""


def fill(**parts: str) -> str:
    """The page with each @@name@@ replaced once; what is filled in is not looked at again."""
    pieces = PAGE.split("@@")
    pieces[1::2] = [parts[name] for name in pieces[1::2]]
    return "".join(pieces)

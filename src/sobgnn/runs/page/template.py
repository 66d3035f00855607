"""The report's page around its content: markup and style."""

from __future__ import annotations

from sobgnn.runs.page.script import SCRIPT

STYLE = """
:root {
  --paper: #fbfaf8; --card: #ffffff; --ink: #23262b; --soft: #5d636c; --faint: #8d939c; --line: #e5e2dc;
  --accent: #2f6690; --bad: #b64a5e; --shade: rgba(40, 40, 30, .05);
  --c0: #3b6fb6; --c1: #d5793a; --c2: #3f9268; --c3: #b64a5e; --c4: #7d63b0; --c5: #a8872c;
  --c6: #2f98a8; --c7: #c264a0; --c8: #6f7f3a; --c9: #7a6a5f;
}
:root[data-theme="dark"] {
  --paper: #16181c; --card: #1d2025; --ink: #e6e4df; --soft: #a9adb4; --faint: #7c818a; --line: #2e323a;
  --accent: #8bb8dc; --bad: #e8849a; --shade: rgba(0, 0, 0, .25);
  --c0: #7aa7e8; --c1: #f0a06a; --c2: #6cc298; --c3: #e8849a; --c4: #b49ce6; --c5: #d9ba5f;
  --c6: #63cbdb; --c7: #eb98cc; --c8: #a9bb6a; --c9: #b5a497;
}
* { box-sizing: border-box; }
html { background: var(--paper); color: var(--ink); }
body {
  margin: 0 auto; max-width: 1120px; padding: 44px 36px 72px; line-height: 1.55; font-size: 15.5px;
  font-family: ui-sans-serif, -apple-system, "Segoe UI", "Inter", "Noto Sans", "DejaVu Sans", sans-serif;
}
h1, h2, .tile b { font-family: "Iowan Old Style", "Palatino Linotype", Palatino, "Source Serif 4", "Noto Serif",
  "DejaVu Serif", Georgia, serif; font-weight: 500; }
header { display: flex; justify-content: space-between; align-items: baseline; gap: 24px; }
h1 { font-size: 34px; line-height: 1.2; margin: 2px 0 10px; overflow-wrap: anywhere; }
.kicker { color: var(--faint); font-size: 12.5px; letter-spacing: .09em; text-transform: uppercase; }
h2 { font-size: 22px; margin: 46px 0 4px; }
h3 { font-size: 14px; font-weight: 600; margin: 16px 0 2px; }
.summary { max-width: 50em; margin: 0 0 26px; } .summary p { margin: 4px 0; color: var(--soft); }
.summary ul { margin: 2px 0; padding-left: 20px; color: var(--soft); }
.summary .verdict { font-size: 19px; color: var(--ink); overflow-wrap: anywhere; font-family: inherit; }
.summary .verdict.bad { color: var(--bad); font-weight: 600; }
section > ul { color: var(--soft); padding-left: 20px; margin: 6px 0 14px; }
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
.chart { width: 100%; height: auto; display: block; }
.chart text { fill: var(--soft); font-size: 13px; } .chart line { stroke: var(--line); }
.chart polyline { fill: none; stroke-width: 2; stroke-linejoin: round; }
.s0 { stroke: var(--c0); } .f0 { fill: var(--c0); } .b0 { background: var(--c0); }
.s1 { stroke: var(--c1); } .f1 { fill: var(--c1); } .b1 { background: var(--c1); }
.s2 { stroke: var(--c2); } .f2 { fill: var(--c2); } .b2 { background: var(--c2); }
.s3 { stroke: var(--c3); } .f3 { fill: var(--c3); } .b3 { background: var(--c3); }
.s4 { stroke: var(--c4); } .f4 { fill: var(--c4); } .b4 { background: var(--c4); }
.s5 { stroke: var(--c5); } .f5 { fill: var(--c5); } .b5 { background: var(--c5); }
.s6 { stroke: var(--c6); } .f6 { fill: var(--c6); } .b6 { background: var(--c6); }
.s7 { stroke: var(--c7); } .f7 { fill: var(--c7); } .b7 { background: var(--c7); }
.s8 { stroke: var(--c8); } .f8 { fill: var(--c8); } .b8 { background: var(--c8); }
.s9 { stroke: var(--c9); } .f9 { fill: var(--c9); } .b9 { background: var(--c9); }
.keys { display: flex; flex-wrap: wrap; gap: 2px 14px; font-size: 13px; color: var(--soft); padding: 2px 4px; }
.keys i { display: inline-block; width: 10px; height: 10px; border-radius: 50%; margin-right: 6px; }
.keys button { border: 0; padding: 1px 0; background: none; } .keys button[aria-pressed="false"] { opacity: .35; }
.bars { display: grid; grid-template-columns: minmax(70px, auto) 1fr auto; gap: 5px 12px; align-items: center;
  font-size: 13.5px; padding: 2px 4px; }
.bars .name { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; max-width: 240px; }
.bars .track { min-width: 40px; }
.bars .track i { display: block; height: 13px; border-radius: 3px; background: var(--accent); }
.bars .n { text-align: right; color: var(--soft); font-variant-numeric: tabular-nums; }
.matrix { overflow: auto; } .matrix p { margin: 0 4px 6px; font-size: 12.5px; color: var(--faint); }
.matrix table { table-layout: fixed; min-width: 220px; }
.matrix th, .matrix td { position: static; padding: 0 2px; height: 30px; border: 1px solid var(--card);
  text-align: center; font-size: 12.5px; overflow: hidden; }
.matrix th span { display: block; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.matrix td { background: color-mix(in srgb, var(--accent) var(--p, 0%), var(--card)); color: var(--ink); }
.matrix td.on { color: var(--card); }
.matrix tbody th { text-align: right; padding-right: 6px; }
.spaced { margin-top: 14px; }
.map { padding: 10px; } .map .box { position: relative; height: 560px; }
#map { width: 100%; height: 100%; display: block; cursor: grab; touch-action: pan-y; }
#tip { position: absolute; pointer-events: none; background: var(--card); border: 1px solid var(--line);
  font-size: 13px; border-radius: 7px; padding: 6px 10px; max-width: 300px; box-shadow: 0 2px 8px var(--shade);
  overflow-wrap: anywhere; }
#tip b { font-weight: 600; } #tip div { color: var(--soft); } #tip canvas { display: block; border-radius: 4px; }
.over { position: absolute; inset: 0; display: flex; align-items: center; justify-content: center; pointer-events: none;
  font-size: clamp(22px, 5vw, 44px); font-weight: 600; color: var(--bad); text-align: center;
  text-shadow: 0 0 6px var(--card), 0 0 12px var(--card); }
.cell { display: inline-block; margin-right: 12px; } .cell i { color: var(--faint); font-style: normal; }
table.rows td { vertical-align: top; } table.rows th { white-space: nowrap; }
table.rows td:not(.text) { white-space: nowrap; max-width: 190px; overflow: hidden; text-overflow: ellipsis; }
table.rows td.text { min-width: 230px; }
td img { display: block; border-radius: 4px; margin: 2px 0; }
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
td .v { white-space: nowrap; } td:has(> .meter) { white-space: nowrap; }
.meter { display: inline-block; height: 7px; border-radius: 4px; background: var(--accent); vertical-align: middle; }
dl { display: grid; grid-template-columns: auto 1fr; gap: 3px 22px; margin: 0; font-size: 14px; }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
details { margin-top: 46px; color: var(--soft); } summary { cursor: pointer; } details dl { padding: 14px 4px; }
footer { color: var(--faint); font-size: 13px; margin-top: 30px; }
@media (max-width: 820px) { .pair, .triple, .wide-left { grid-template-columns: minmax(0, 1fr); }
  body { padding: 26px 16px 48px; }
  .map .box { height: 400px; }
  .bar .grow { flex-basis: 100%; } .rows thead { display: none; }
  .rows tr { display: flex; flex-wrap: wrap; border-bottom: 1px solid var(--line); padding: 4px 0; }
  table.rows td { border: 0; padding: 2px 8px; } table.rows td.text { flex-basis: 100%; }
  .rows td[data-head]::before { content: attr(data-head) " "; color: var(--faint); font-size: 12px; }
  th, td { padding: 6px 8px; } }
@media print { button { display: none; } }
"""

# The policy keeps the page offline: it may run what it carries, and load nothing.
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline';
 style-src 'unsafe-inline'; img-src data:">
<title>@@title@@</title>
<style>@@style@@</style>
</head>
<body>
@@body@@
<script type="application/json" id="page-data">@@data@@</script>
<script>@@script@@</script>
</body>
</html>
"""


def fill(**parts: str) -> str:
    """The page with each @@name@@ replaced once; inserted text is not scanned again."""
    pieces = PAGE.split("@@")
    pieces[1::2] = [SCRIPT if name == "script" else parts[name] for name in pieces[1::2]]
    return "".join(pieces)

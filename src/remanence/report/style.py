"""The page's style sheet: two colour schemes, any width, paper."""

COLOURS = 8  # --series-1 .. --series-8 below
_DASHES = ((1, 0), (7, 3), (10, 3, 2, 3), (3, 2), (14, 4), (6, 2, 2, 2, 2, 2), (2, 3))


def colour(number: int) -> str:
    """Of the line with this number."""
    return f"var(--series-{number % COLOURS + 1})"


def dash(number: int) -> tuple[int, ...]:
    """Strokes and gaps; seven kinds beside eight colours make 56 pairs."""
    return _DASHES[number % len(_DASHES)]


# The eight series colours of either scheme stay apart under protanopia, deuteranopia and tritanopia.
STYLE = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ground: #f4f5f7; --ink: #191c21; --soft: #555c68; --line: #e6e8ec; --edge: #c3c8d0;
  --accent: #0b5fb4; --heat: #0b5fb4; --loss: #c04f00; --on-heat: #ffffff; --notice: #fff5dc; --notice-edge: #d9a300;
  --series-1: #0b5fb4; --series-2: #d95f02; --series-3: #44a080; --series-4: #850344;
  --series-5: #b978df; --series-6: #5a5d04; --series-7: #5b268c; --series-8: #8c517f;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #1a1d23; --ground: #121419; --ink: #e8eaee; --soft: #a5adba; --line: #2b3038; --edge: #4b525e;
    --accent: #7ab8ff; --heat: #2f7dd1; --loss: #c25a12; --on-heat: #ffffff; --notice: #322a14; --notice-edge: #c99a1c;
    --series-1: #5aa9ff; --series-2: #ff9a56; --series-3: #7cface; --series-4: #e4569e;
    --series-5: #f4e300; --series-6: #a3a72a; --series-7: #b7b7b7; --series-8: #129390;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0; background: var(--ground); color: var(--ink); line-height: 1.5;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
header, main, footer { max-width: 1120px; margin: 0 auto; padding: 0 24px; }
header { padding-top: 36px; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0; letter-spacing: -0.015em; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 44px 0 12px; letter-spacing: -0.01em; }
h3 { font-size: 1.05rem; margin: 0; }
p { margin: 0 0 8px; }
a { color: var(--accent); }
.lead { color: var(--soft); font-size: 1.08rem; margin: 6px 0 0; overflow-wrap: anywhere; }
nav { display: flex; flex-wrap: wrap; gap: 4px 20px; margin-top: 18px; padding-bottom: 10px;
  border-bottom: 1px solid var(--edge); }
nav a { text-decoration: none; padding: 3px 0; }
nav a:hover { text-decoration: underline; }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; border-radius: 3px; }
.notice { margin: 18px 0 0; padding: 10px 16px; background: var(--notice); border-left: 4px solid var(--notice-edge);
  border-radius: 4px; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 6px 24px; margin: 0; }
dt { color: var(--soft); }
dd { margin: 0; grid-column: 2; overflow-wrap: anywhere; }
.card { background: var(--paper); border: 1px solid var(--line); border-radius: 10px;
  padding: 18px 20px; margin: 0 0 18px; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(420px, 100%), 1fr)); gap: 0 18px; }
.pair > * { min-width: 0; }
figure { min-width: 0; }
figcaption { display: grid; grid-template-columns: 1fr auto; gap: 0 12px; align-items: start; }
figcaption p { grid-column: 1 / -1; color: var(--soft); font-size: 0.93rem; margin: 2px 0 12px; max-width: 80ch; }
.chart { width: 100%; display: block; }
.chart svg { display: block; max-width: 100%; height: auto; overflow: visible; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 22px; list-style: none; padding: 0; margin: 0 0 14px; }
.legend li { display: flex; align-items: center; gap: 8px; max-width: 100%; overflow-wrap: anywhere; }
.legend svg { flex: none; }
.ramp { display: flex; align-items: center; gap: 8px; color: var(--soft); font-size: 0.85rem; margin: 6px 0 0; }
.ramp i { display: inline-block; width: 140px; height: 10px; border-radius: 2px; border: 1px solid var(--line); }
.ramp i.heat { background: linear-gradient(90deg, transparent, var(--heat)); }
.ramp i.loss { background: linear-gradient(90deg, transparent, var(--loss)); }
.scroll { overflow-x: auto; max-width: 100%; position: relative; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 7px 0 7px 16px; text-align: right; vertical-align: top; white-space: nowrap; }
th:first-child, td:first-child { padding-left: 0; text-align: left; }
thead th { color: var(--soft); font-weight: 600; font-size: 0.88rem; border-bottom: 1px solid var(--edge);
  vertical-align: bottom; white-space: normal; line-height: 1.25; }
tbody th { font-weight: 600; }
tbody tr + tr > * { border-top: 1px solid var(--line); }
td.text, th.text { text-align: left; white-space: normal; overflow-wrap: anywhere; min-width: 14em; }
.result th:first-child { min-width: 7em; max-width: 22em; white-space: normal; overflow-wrap: anywhere; }
.result .spread { color: var(--soft); }
.result .best { font-weight: 700; }
.star { display: inline-block; width: 1em; text-align: center; color: var(--accent); }
.note { display: block; font-weight: 400; font-size: 0.85rem; color: var(--soft); }
.hint { color: var(--soft); font-size: 0.88rem; margin: 12px 0 0; }
details { margin-top: 12px; font-size: 0.92rem; }
summary { cursor: pointer; color: var(--accent); width: fit-content; }
details .scroll { max-height: 420px; overflow: auto; margin-top: 8px; }
details table { width: auto; }
details th, details td { padding-top: 4px; padding-bottom: 4px; }
details thead th { position: sticky; top: 0; background: var(--paper); }
button { font: inherit; font-size: 0.85rem; color: var(--soft); background: none; border: 1px solid var(--line);
  border-radius: 6px; padding: 2px 10px; cursor: pointer; }
button:hover { color: var(--ink); border-color: var(--edge); }
footer { color: var(--soft); font-size: 0.88rem; padding-top: 28px; padding-bottom: 48px; }
.aside { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
#vg-tooltip-element.vg-tooltip { font: inherit; font-size: 13px; background: var(--paper); color: var(--ink);
  border: 1px solid var(--edge); border-radius: 6px; box-shadow: 0 4px 16px rgb(0 0 0 / 0.2); padding: 8px 10px;
  position: fixed; z-index: 1000; visibility: hidden; pointer-events: none; }
#vg-tooltip-element.vg-tooltip.visible { visibility: visible; }
#vg-tooltip-element.vg-tooltip td { padding: 1px 0 1px 10px; border: 0; white-space: normal;
  max-width: 240px; overflow-wrap: anywhere; }
#vg-tooltip-element.vg-tooltip td.key { color: var(--soft); padding-left: 0; text-align: left; }
@media (max-width: 640px) {
  header, main, footer { padding-left: 14px; padding-right: 14px; }
  header { padding-top: 22px; }
  h1 { font-size: 1.55rem; }
  h2 { margin-top: 32px; }
  .card { padding: 14px 12px; }
  dl { grid-template-columns: 1fr; gap: 0; }
  dt { margin-top: 8px; }
  dd { grid-column: 1; }
  th, td { padding-left: 14px; }
  .result th:first-child { position: sticky; left: 0; background: var(--paper); }
}
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
@media print {
  body { background: none; font-size: 11pt; }
  header, main, footer { max-width: none; padding-left: 0; padding-right: 0; }
  nav, button, details:not([open]) { display: none; }
  .card { border: 0; padding: 0; margin-bottom: 14pt; break-inside: avoid; }
  .scroll { overflow: visible; max-height: none; }
  h2, .legend { break-after: avoid; }
  section:has(> .card > details:only-child:not([open])) { display: none; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""

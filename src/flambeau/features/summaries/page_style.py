"""The style of the page: light or dark as the reader's system is, and of any width.

The colours can be told apart by people who do not see all colours (Okabe and Ito), and the
shapes of train, valid and test differ.
"""

STYLE = """
:root { color-scheme: light dark; --ground: #fff; --card: #f6f7f9; --line: #d5d9df; --text: #1b1f24;
  --soft: #59626d; --train: #56b4e9; --valid: #b34d00; --test: #0b0b0b; --warn: #7a3b00;
  --warn-ground: #fdf0d5; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171b; --card: #1d2126; --line: #3a414a;
  --text: #e8eaed; --soft: #a3acb8; --train: #2f7fb5; --valid: #f0a830; --test: #f5f5f5;
  --warn: #ffcf87; --warn-ground: #3b2c12; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 84rem; background: var(--ground);
  color: var(--text); font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 0; overflow-wrap: anywhere; }
p { margin: .3rem 0; } .soft, small { color: var(--soft); }
a { color: inherit; }
.cards { display: grid; align-items: start; gap: .8rem; grid-template-columns: repeat(auto-fill,
  minmax(min(20rem,
  100%), 1fr)); }
article { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding:
  .7rem;
  min-width: 0; content-visibility: auto; contain-intrinsic-size: auto 20rem; }
article:target { outline: 2px solid var(--valid); }
svg { display: block; width: 100%; max-width: 26rem; margin: .5rem 0; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
.axis { fill: none; stroke: var(--line); } .train { fill: var(--train); }
polyline.valid, polyline.test { fill: none; stroke-width: 1.6; }
polyline.valid { stroke: var(--valid); stroke-dasharray: 4 2; } polyline.test { stroke:
  var(--test); }
circle.valid { fill: var(--valid); } path.test { fill: none; stroke: var(--test); stroke-width:
  1.4; }
.warn { background: var(--warn-ground); color: var(--warn); border-radius: .3rem; padding: .15rem
  .4rem;
  margin: .3rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric:
  tabular-nums; }
th, td { text-align: right; padding: .1rem .4rem; border-top: 1px solid var(--line); white-space:
  nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; } th { font-weight: 600; }
.index { columns: 12rem; padding: 0; list-style: none; font-size: 13px; overflow-wrap: anywhere; }
summary { cursor: pointer; }
.key svg { display: inline-block; width: 22px; margin: 0 .3rem 0 0; vertical-align: middle; }
.key span { margin-right: 1.2rem; white-space: nowrap; }
"""

"""The page's additions to the common style: the marks of train, valid and test.

The marks differ in shape as well as in color.
"""

STYLE = """
:root { --train: #56b4e9; --valid: #b34d00; --test: #0b0b0b; }
@media (prefers-color-scheme: dark) { :root { --train: #2f7fb5; --valid: #f0a830;
  --test: #f5f5f5; } }
article { content-visibility: auto; contain-intrinsic-size: auto 20rem; }
article:target { outline: 2px solid var(--focus); }
svg { max-width: 26rem; margin: .5rem 0; }
.train { fill: var(--train); }
polyline.valid, polyline.test { fill: none; stroke-width: 1.6; }
polyline.valid { stroke: var(--valid); stroke-dasharray: 4 2; }
polyline.test { stroke: var(--test); }
circle.valid { fill: var(--valid); }
path.test { fill: none; stroke: var(--test); stroke-width: 1.4; }
.index { columns: 12rem; padding: 0; list-style: none; font-size: 13px; overflow-wrap: anywhere; }
.key svg { display: inline-block; width: 22px; margin: 0 .3rem 0 0; vertical-align: middle; }
.key span { margin-right: 1.2rem; white-space: nowrap; }
"""

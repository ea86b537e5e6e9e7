"""A self-contained HTML page: it needs no other file and no network.

Its colours follow the reader's system, light or dark. Colour-blind readers can distinguish lines
and bars: the palette is that of Okabe and Ito.
"""

import base64
import hashlib
from html import escape

_STYLE = """
:root { color-scheme: light dark; --ground: #fff; --card: #f6f7f9; --line: #d5d9df; --text: #1b1f24;
  --soft: #59626d; --warn: #7a3b00; --warn-ground: #fdf0d5; --focus: #b34d00; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171b; --card: #1d2126; --line: #3a414a;
  --text: #e8eaed; --soft: #a3acb8; --warn: #ffcf87; --warn-ground: #3b2c12; --focus: #f0a830; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 84rem; background: var(--ground);
  color: var(--text); font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 0; overflow-wrap: anywhere; }
p { margin: .3rem 0; } .soft, small { color: var(--soft); }
a { color: inherit; }
.cards { display: grid; align-items: start; gap: .8rem;
  grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr)); }
article { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .7rem; min-width: 0; }
svg { display: block; width: 100%; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
.axis { fill: none; stroke: var(--line); }
.warn { background: var(--warn-ground); color: var(--warn); border-radius: .3rem;
  padding: .15rem .4rem; margin: .3rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13px;
  font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .1rem .4rem; border-top: 1px solid var(--line);
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; } th { font-weight: 600; }
summary { cursor: pointer; }
"""


def document(
    title: str, body: str, *, style: str = "", script: str = "", live: bool = False
) -> str:
    """Return the page; `title` is plain text, and `body` is HTML in which all texts are escaped.

    Only `script` runs, whose hash the page allows. A `live` page may connect to its own server.
    """
    allowed = ["default-src 'none'", "style-src 'unsafe-inline'"]
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        allowed.append(f"script-src 'sha256-{digest}'")
    if live:
        allowed += ["connect-src 'self'", "img-src data:"]
    # Without an icon in the page, a browser requests one from the server.
    icon = '<link rel="icon" href="data:,">' if live else ""
    policy = "; ".join([*allowed, "base-uri 'none'", "form-action 'none'"])
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"{icon}<title>{escape(title)}</title><style>{_STYLE}{style}</style></head>\n<body>\n"
        f"{body}\n{f'<script>{script}</script>' if script else ''}</body></html>\n"
    )

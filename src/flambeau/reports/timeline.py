"""Events of a job over time, as lanes."""

from collections.abc import Iterator, Sequence
from html import escape

from flambeau.reports.axes import Scale, time_scale
from flambeau.reports.comparison import duration
from flambeau.reports.history import History

STYLE = """
.lanes { display: grid; grid-template-columns: max-content 1fr; gap: .25rem .6rem;
  align-items: center; font-size: 13px; }
.lanes svg { height: 16px; background: var(--grid); border-radius: 3px; }
.lanes .starting { fill: var(--c4); } .lanes .training { fill: var(--c0); }
.lanes .evaluation { fill: var(--c2); } .lanes .checkpoint { fill: var(--c3); }
.lanes .trouble { fill: var(--c1); }
.ticks { position: relative; height: 1.3em; color: var(--soft); font-size: 12px; }
.ticks span { position: absolute; transform: translateX(-50%); white-space: nowrap; }
.ticks span:first-child { transform: none; }
"""

#: Kinds of notes that are marked in the lane of trouble.
TROUBLE = ("worker_lost", "restart", "exception")
_WIDTH = 1000.0
#: Minimum width of a mark.
_MARK = 4.0


def timeline(history: History) -> str:
    """Return the lanes; an empty text if there are no events yet."""
    if history.began is None or history.elapsed <= 0:
        return ""
    along = time_scale(history.elapsed, 0, _WIDTH)
    lanes = [("job", list(_phases(history, along)))]
    if history.evaluations.count:
        lanes.append(("evaluations", list(_evaluations(history, along))))
    if history.checkpoints.count:
        lanes.append(("checkpoints", list(_checkpoints(history, along))))
    trouble = list(_trouble(history, along))
    if trouble:
        lanes.append(("lost, restarts", trouble))
    rows = "".join(f"<span>{name}</span>{_lane(name, marks)}" for name, marks in lanes)
    ticks = "".join(
        f'<span style="left:{along(value) / _WIDTH:.2%}">{text}</span>'
        for value, text in along.ticks
        if along(value) < 0.97 * _WIDTH
    )
    below = f'<small>{along.unit}</small><div class="ticks">{ticks}</div>'
    return f'<div class="lanes">{rows}{below}</div>'


def _lane(name: str, marks: Sequence[str]) -> str:
    label = f"{name} over time, {len(marks)} marks"
    return (
        f'<svg viewBox="0 0 {_WIDTH:g} 10" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label)}">{"".join(marks)}</svg>'
    )


def _mark(kind: str, begin: float, end: float, along: Scale, title: str) -> str:
    x = along(min(begin, along.high))
    width = max(_MARK, along(min(end, along.high)) - x)
    x = min(x, _WIDTH - width)
    return (
        f'<rect class="{kind}" x="{x:.1f}" width="{width:.1f}" height="10">'
        f"<title>{escape(title)}</title></rect>"
    )


def _phases(history: History, along: Scale) -> Iterator[str]:
    for span in history.spans.items:
        if span.phase != "stopped" and span.end > span.begin:
            times = f"{duration(span.begin)} to {duration(span.end)}"
            yield _mark(span.phase, span.begin, span.end, along, f"{span.phase}, {times}")


def _evaluations(history: History, along: Scale) -> Iterator[str]:
    found = history.evaluations.thinned("seconds")
    for end, step, seconds in zip(found.elapsed, found.steps, found.means, strict=True):
        words = f"evaluation at step {step:,.0f}, {duration(seconds)}"
        yield _mark("evaluation", max(0.0, end - seconds), end, along, words)


def _checkpoints(history: History, along: Scale) -> Iterator[str]:
    found = history.checkpoints.thinned("step")
    for time, step in zip(found.elapsed, found.steps, strict=True):
        words = f"checkpoint of step {step:,.0f}, after {duration(time)}"
        yield _mark("checkpoint", time, time, along, words)


def _trouble(history: History, along: Scale) -> Iterator[str]:
    for note in history.notes.items:
        if note.kind in TROUBLE:
            words = f"{duration(note.elapsed)}: {note.text}"
            yield _mark("trouble", note.elapsed, note.elapsed, along, words)

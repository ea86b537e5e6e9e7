"""Scripts of a page: values under the pointer and, on a live page, updates."""

#: Shows the values of all lines of a chart at the step or time under the pointer.
CURSOR = """
'use strict';
const pick = (node, name) => node.dataset[name].split(' ').map(Number);
const short = v => v !== 0 && (Math.abs(v) < 1e-3 || Math.abs(v) >= 1e6)
  ? v.toExponential(3) : String(Number(v.toPrecision(5)));
function read(chart, x) {
  const [low, high, begin, end, unit] = pick(chart, 'x');
  const [bottom, top, first, last, log] = pick(chart, 'y');
  const found = [];
  let at = null;
  for (const line of chart.querySelectorAll('path[data-name]')) {
    let best = null;
    for (const pair of line.getAttribute('d').slice(1).split('L')) {
      const point = pair.split(' ').map(Number);
      if (best === null || Math.abs(point[0] - x) < Math.abs(best[0] - x)) best = point;
    }
    if (best === null) continue;
    const share = (best[1] - first) / (last - first);
    const value = log ? bottom * Math.pow(top / bottom, share) : bottom + (top - bottom) * share;
    at = at === null ? best[0] : at;
    const name = line.dataset.name;
    found.push((name ? name + ' ' : '') + short(value));
  }
  if (at === null) return '';
  const place = (low + (high - low) * (at - begin) / (end - begin)) / unit;
  const where = chart.dataset.unit ? short(place) + ' ' + chart.dataset.unit
    : 'step ' + Math.round(place);
  return [where + ': ' + found.join(', '), at];
}
document.addEventListener('pointermove', event => {
  const chart = event.target.closest ? event.target.closest('svg[data-x]') : null;
  for (const old of document.querySelectorAll('.cursor')) old.remove();
  if (!chart) return;
  const box = chart.getBoundingClientRect(), view = chart.viewBox.baseVal;
  const answer = read(chart, (event.clientX - box.left) / box.width * view.width);
  if (!answer) return;
  const mark = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  mark.setAttribute('class', 'cursor');
  const y = pick(chart, 'y');
  mark.setAttribute('d', 'M' + answer[1] + ' ' + y[2] + 'V' + y[3]);
  chart.append(mark);
  chart.parentElement.querySelector('.read').textContent = answer[0];
});
"""

#: Replaces the main part of the page whenever the server sends a new version.
LIVE = """
const state = document.getElementById('connection');
const source = new EventSource('events' + location.search);
source.addEventListener('page', event => {
  const open = [...document.querySelectorAll('main details[open]')].map(each => each.id);
  document.querySelector('main').innerHTML = JSON.parse(event.data);
  for (const id of open) {
    const again = document.getElementById(id);
    if (again) again.open = true;
  }
});
source.addEventListener('state', event => { state.textContent = JSON.parse(event.data); });
source.onerror = () => {
  if (source.readyState !== EventSource.CLOSED) state.textContent = 'connection lost, trying again';
};
"""

'use strict';
// Everything that is shown follows from `data` (columns of records, times in ns) and `state`; draw() draws it anew.

const data = JSON.parse(document.getElementById('data').textContent);
const count = data.start.length;
const first = Math.min(...span(data.start)), last = Math.max(...span(data.end));
const state = { from: first, to: Math.max(last, first + 1), y: 0, x: -1, selected: null, found: -1, sort: null };
const byId = (id) => document.getElementById(id);
const LEFT = 110, RIGHT = 12, LANE = 22, TABLE_ROWS = 300;

// Least and greatest of what is a number; Math.min(...array) would run out of stack on long ones.
function span(values) {
  let min = Infinity, max = -Infinity;
  for (const value of values) {
    if (value !== null && value < min) min = value;
    if (value !== null && value > max) max = value;
  }
  return [min, max];
}

const distinct = (values) => [...new Set(values)].sort((a, b) => a - b);
const cpus = distinct(data.cpu), tids = distinct(data.tid);
const colours = {
  cpu: new Map(cpus.map((cpu, i) => [cpu, data.colours[i % data.colours.length]])),
  tid: new Map(tids.map((tid, i) => [tid, data.colours[i % data.colours.length]])),
};
const threadName = new Map();
for (let i = 0; i < count; i++) threadName.set(data.tid[i], `${data.threads[data.thread[i]]} ${data.tid[i]}`);
const colourOf = (i) => byId('colour').value === 'CPU' ? colours.cpu.get(data.cpu[i]) : colours.tid.get(data.tid[i]);

// ---- numbers as text

function number(value) {
  if (value === null || !Number.isFinite(value)) return '';
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString('en');
  if (Number.isInteger(value)) return String(value);
  return size >= 0.01 ? value.toFixed(3) : value.toExponential(2);
}
function short(value) {
  const size = Math.abs(value);
  for (const [unit, letter] of [[1e9, 'G'], [1e6, 'M'], [1e4, 'k']]) {
    if (size >= unit) return (value / (letter === 'k' ? 1e3 : unit)).toFixed(2) + letter;
  }
  return value === 0 ? '0' : size >= 0.001 ? value.toFixed(3) : value.toExponential(1);
}
const ms = (ns) => (ns / 1e6).toFixed(3);

// ---- sets of records

const visible = (i) => data.end[i] >= state.from && data.start[i] <= state.to;
const isSelected = (i) => state.selected !== null && state.selected.has(i);

// The selection; without one, what the time axis shows.
function current() {
  const all = [];
  for (let i = 0; i < count; i++) if (state.selected ? state.selected.has(i) : visible(i)) all.push(i);
  return all;
}
function select(test) {
  const chosen = new Set();
  for (let i = 0; i < count; i++) if (test(i)) chosen.add(i);
  state.selected = chosen.size ? chosen : null;
  state.found = -1;
  draw();
}

// ---- statistics, as `hpmctl explore` computes them

function statistics(values) {
  const numbers = values.filter((value) => value !== null);
  const n = numbers.length, sum = numbers.reduce((a, b) => a + b, 0), mean = n ? sum / n : null;
  const [min, max] = n ? span(numbers) : [null, null];
  const squares = numbers.reduce((a, b) => a + (b - mean) ** 2, 0);
  let deltas = 0;
  for (let i = 1; i < n; i++) deltas += Math.abs(numbers[i] - numbers[i - 1]);
  // A single value does not differ from any other.
  const per = (total) => n > 1 ? total / (n - 1) : NaN;
  return { n, sum, min, max, mean, sd: Math.sqrt(per(squares)), delta: per(deltas) };
}
function correlation(xs, ys) {
  const pairs = xs.map((x, i) => [x, ys[i]]).filter(([x, y]) => x !== null && y !== null);
  const n = pairs.length, mean = (k) => pairs.reduce((a, p) => a + p[k], 0) / n;
  const mx = mean(0), my = mean(1);
  let xx = 0, yy = 0, xy = 0;
  for (const [x, y] of pairs) { xx += (x - mx) ** 2; yy += (y - my) ** 2; xy += (x - mx) * (y - my); }
  if (!(n > 1 && xx > 0 && yy > 0)) return { n, r: null, interval: null };
  const r = Math.min(1, Math.max(-1, xy / Math.sqrt(xx * yy)));
  // Fisher's transformation, as of records that are independent of each other.
  const half = 1.959963985 / Math.sqrt(n - 3);
  const interval = n > 3 && Math.abs(r) < 1 ? [Math.tanh(Math.atanh(r) - half), Math.tanh(Math.atanh(r) + half)] : null;
  return { n, r, interval };
}

// A metric of sums over records, from its parts; NaN where it asks for what cannot be added.
function computed(part, sums) {
  if (part === null) return NaN;
  if (typeof part === 'number') return part;
  if (!Array.isArray(part)) return sums[part.sum];
  const [name, ...parts] = part, at = (n) => computed(parts[n], sums);
  const isTrue = (value) => value !== 0 && !Number.isNaN(value), either = (a, b) => Number.isNaN(a) ? b : a;
  const pair = (of) => { const [a, b] = [at(0), at(1)]; return of(a, b); };
  switch (name) {
    case 'negative': return -at(0);
    case 'not': return +!isTrue(at(0));
    case 'or': return +(isTrue(at(0)) || isTrue(at(1)));
    case 'and': return +(isTrue(at(0)) && isTrue(at(1)));
    case '<': return pair((a, b) => +(a < b));
    case '<=': return pair((a, b) => +(a <= b));
    case '>': return pair((a, b) => +(a > b));
    case '>=': return pair((a, b) => +(a >= b));
    case '==': return pair((a, b) => +(a === b));
    case '!=': return pair((a, b) => +(a < b || a > b));
    case '+': return pair((a, b) => a + b);
    case '-': return pair((a, b) => a - b);
    case '*': return pair((a, b) => a * b);
    case '/': return pair((a, b) => a / b);
    case 'min': return pair((a, b) => either(a, b) < either(b, a) ? either(a, b) : either(b, a));
    case 'max': return pair((a, b) => either(a, b) > either(b, a) ? either(a, b) : either(b, a));
    case 'abs': return Math.abs(at(0));
    case 'sqrt': return Math.sqrt(at(0));
    case 'log': return Math.log(at(0));
    case 'if': return at(isTrue(at(0)) ? 1 : 2);
    default: return NaN;
  }
}

// ---- drawing

// A canvas of its size on the screen, cleared, and its drawing context in CSS pixels.
function context(id, height) {
  const canvas = byId(id), ratio = window.devicePixelRatio || 1;
  if (height) canvas.style.height = `${height}px`;
  const box = canvas.getBoundingClientRect();
  canvas.width = box.width * ratio;
  canvas.height = box.height * ratio;
  const g = canvas.getContext('2d');
  g.scale(ratio, ratio);
  g.font = '11px sans-serif';
  return [g, box.width, box.height];
}
const timeScale = (width) => (ns) => LEFT + (ns - state.from) / (state.to - state.from) * (width - LEFT - RIGHT);
const opacity = (i) => state.selected && !isSelected(i) ? 0.2 : 1;

function label(g, text, x, y, align) {
  g.globalAlpha = 1;
  g.fillStyle = '#111';
  g.textAlign = align;
  g.fillText(text, x, y);
}
function timeAxis(g, width, y) {
  const x = timeScale(width);
  for (let part = 0; part <= 4; part++) {
    const at = state.from + (state.to - state.from) * part / 4;
    label(g, `${ms(at)} ms`, x(at), y, part === 0 ? 'left' : part === 4 ? 'right' : 'center');
  }
}
function markers(g, width, height) {
  const x = timeScale(width);
  g.strokeStyle = '#666';
  for (const [time, text] of data.markers) {
    if (time < state.from || time > state.to) continue;
    g.setLineDash([2, 3]);
    g.beginPath(); g.moveTo(x(time), 0); g.lineTo(x(time), height); g.stroke();
    g.setLineDash([]);
    label(g, text, x(time) + 3, 10, 'left');
  }
}
function inTimeArea(g, width, height, paint) {
  g.save();
  g.beginPath(); g.rect(LEFT, 0, width - LEFT - RIGHT + 4, height); g.clip();
  paint();
  g.restore();
}
function drawTime() {
  const [g, width, height] = context('time'), values = data.values[state.y];
  const shown = [];
  for (let i = 0; i < count; i++) if (visible(i) && values[i] !== null) shown.push(i);
  const [min, max] = span(shown.map((i) => values[i]));
  const x = timeScale(width), bottom = height - 20;
  const y = (value) => max > min ? bottom - 4 - (value - min) / (max - min) * (bottom - 16) : bottom / 2;
  inTimeArea(g, width, height, () => {
    for (const i of shown) {
      g.globalAlpha = opacity(i);
      g.fillStyle = i === state.found ? '#d00000' : colourOf(i);
      g.fillRect(x(data.start[i]), y(values[i]) - 1.5, Math.max(2, x(data.end[i]) - x(data.start[i])), 3);
    }
    markers(g, width, bottom);
  });
  if (shown.length) {
    label(g, short(max), LEFT - 6, 14, 'right');
    label(g, short(min), LEFT - 6, bottom - 2, 'right');
  }
  timeAxis(g, width, height - 5);
}
function drawLanes(id, lanes, laneOf, nameOf, colour) {
  const height = lanes.length * LANE + 22, [g, width] = context(id, height);
  const x = timeScale(width), place = new Map(lanes.map((lane, n) => [lane, n * LANE + 3]));
  inTimeArea(g, width, height, () => {
    for (let i = 0; i < count; i++) {
      if (!visible(i)) continue;
      const top = place.get(laneOf[i]), from = x(data.start[i]), to = x(data.end[i]);
      g.globalAlpha = opacity(i);
      g.fillStyle = i === state.found ? '#d00000' : colour(i);
      g.fillRect(from, top, Math.max(0.5, to - from), 12);
      g.fillStyle = '#111';
      g.beginPath();
      if (data.how[i] === 'preempted') { g.moveTo(to, top + 13); g.lineTo(to - 3, top + 18); g.lineTo(to + 3, top + 18); }
      else if (data.how[i] === 'yielded') g.arc(to, top + 16, 1.7, 0, 7);
      else if (data.how[i] === 'exited') g.rect(to - 2, top + 13, 4, 4);
      g.fill();
    }
    markers(g, width, height - 20);
  });
  for (const lane of lanes) label(g, nameOf(lane).slice(0, 18), LEFT - 6, place.get(lane) + 11, 'right');
  timeAxis(g, width, height - 5);
}

// Places of the scatter plot's points in pixels; null for a record that has none.
function scatterPlaces(width, height) {
  const xs = data.values[state.x], ys = data.values[state.y], shown = current();
  const has = shown.filter((i) => xs[i] !== null && ys[i] !== null);
  const [x0, x1] = span(has.map((i) => xs[i])), [y0, y1] = span(has.map((i) => ys[i]));
  const share = (value, min, max) => max > min ? (value - min) / (max - min) : 0.5;
  const place = (i) => [70 + share(xs[i], x0, x1) * (width - 90), height - 26 - share(ys[i], y0, y1) * (height - 42)];
  return { has, place, range: [x0, x1, y0, y1] };
}
function drawScatter() {
  const [g, width, height] = context('scatter');
  if (state.x < 0) return label(g, 'choose a metric to compare with, above', 20, 30, 'left');
  const { has, place, range: [x0, x1, y0, y1] } = scatterPlaces(width, height);
  for (const i of has) {
    const [x, y] = place(i);
    g.globalAlpha = 0.7;
    g.fillStyle = i === state.found ? '#d00000' : colourOf(i);
    g.beginPath(); g.arc(x, y, i === state.found ? 5 : 2.5, 0, 7); g.fill();
  }
  if (!has.length) return label(g, 'no record has both', 20, 30, 'left');
  label(g, short(y1), 64, 16, 'right');
  label(g, short(y0), 64, height - 24, 'right');
  label(g, short(x0), 70, height - 6, 'left');
  label(g, short(x1), width - 16, height - 6, 'right');
}

// ---- tables

function row(cells, tag) {
  const line = document.createElement('tr');
  for (const [text, isText] of cells) {
    const cell = document.createElement(tag);
    cell.textContent = text;
    if (isText) cell.className = 'text';
    line.append(cell);
  }
  return line;
}
function drawStatistics(shown) {
  const head = ['metric', 'records', 'overall', 'sum', 'min', 'max', 'mean', 'sd', 'mean delta'].map((name, n) => [name, n === 0]);
  const sums = data.added.map((column) => shown.reduce((sum, i) => sum + column[i], 0));
  const lines = data.metrics.map((name, m) => {
    const s = statistics(shown.map((i) => data.values[m][i])), overall = number(computed(data.overall[m], sums));
    const cell = (value) => !s.n ? '' : Number.isNaN(value) ? 'undefined' : number(value);
    const [records, ...cells] = [s.n, s.sum, s.min, s.max, s.mean, s.sd, s.delta].map(cell);
    return row([[name, true], ...[records, overall, ...cells].map((cell) => [cell, false])], 'td');
  });
  byId('statistics').replaceChildren(row(head, 'th'), ...lines);
  byId('whose').textContent = state.selected ? `${shown.length} selected records` : `${shown.length} records in view`;
  const c = state.x < 0 ? null : correlation(shown.map((i) => data.values[state.x][i]), shown.map((i) => data.values[state.y][i]));
  byId('correlation').textContent = c === null ? '' : `correlation r = ${c.r === null ? 'undefined' : c.r.toFixed(3)} of ${c.n} `
    + `records, 95 % interval ${c.interval === null ? 'unknown' : c.interval.map((end) => end.toFixed(3)).join(' to ')}`;
}

// The columns of the table: head, text or number, value to sort by, what is shown.
const columns = [
  ['start ms', false, (i) => data.start[i], (i) => ms(data.start[i])],
  ['duration ms', false, (i) => data.end[i] - data.start[i], (i) => ms(data.end[i] - data.start[i])],
  ['cpu', false, (i) => data.cpu[i], (i) => data.cpu[i]],
  ['thread', true, (i) => threadName.get(data.tid[i]), (i) => threadName.get(data.tid[i])],
  ['end', true, (i) => data.how[i], (i) => data.how[i]],
  ['function', true, (i) => data.functions[data.function[i]], (i) => data.functions[data.function[i]]],
  ...data.metrics.map((name, m) => [name, false, (i) => data.values[m][i] ?? -Infinity, (i) => number(data.values[m][i])]),
];
function drawRecords(shown) {
  if (state.sort) {
    const [column, sign] = state.sort, key = columns[column][2];
    shown = [...shown].sort((a, b) => (key(a) < key(b) ? -sign : key(a) > key(b) ? sign : a - b));
  }
  let from = Math.max(0, shown.indexOf(state.found) - 5);
  from = Math.min(from, Math.max(0, shown.length - TABLE_ROWS));
  const head = row(columns.map(([name, isText]) => [name, isText]), 'th');
  [...head.children].forEach((cell, column) => cell.addEventListener('click', () => {
    const up = state.sort && state.sort[0] === column ? -state.sort[1] : 1;
    state.sort = [column, up];
    draw();
  }));
  const lines = shown.slice(from, from + TABLE_ROWS).map((i) => {
    const line = row(columns.map(([, isText, , text]) => [text(i), isText]), 'td');
    if (i === state.found) line.className = 'found';
    line.dataset.record = i;
    line.addEventListener('click', () => { state.found = i; reveal(i); draw(); });
    return line;
  });
  byId('records').replaceChildren(head, ...lines);
  const part = shown.length > TABLE_ROWS ? `, of which ${TABLE_ROWS} are listed` : '';
  byId('shown').textContent = `(${shown.length}${part})`;
}

// Moves the time axis until a record is in view.
function reveal(i) {
  if (visible(i)) return;
  const half = (state.to - state.from) / 2, middle = (data.start[i] + data.end[i]) / 2;
  [state.from, state.to] = [middle - half, middle + half];
}

// ---- what the address says: a view that can be linked

function writeHash() {
  const parts = [`from=${ms(state.from)}`, `to=${ms(state.to)}`, `y=${state.y}`, `x=${state.x}`];
  if (state.range) parts.push(`select=${ms(state.range[0])},${ms(state.range[1])}`);
  if (state.found >= 0) parts.push(`record=${state.found}`);
  history.replaceState(null, '', `#${parts.join('&')}`);
}
function readHash() {
  const said = new URLSearchParams(location.hash.slice(1));
  const asNumber = (name, otherwise) => said.has(name) && Number.isFinite(+said.get(name)) ? +said.get(name) : otherwise;
  const index = (name, otherwise) => Math.min(asNumber(name, otherwise), data.metrics.length - 1);
  [state.from, state.to] = [asNumber('from', first / 1e6) * 1e6, asNumber('to', state.to / 1e6) * 1e6];
  if (!(state.to > state.from)) state.to = state.from + 1;
  [state.y, state.x] = [Math.max(0, index('y', 0)), index('x', data.metrics.length > 1 ? 1 : -1)];
  if (said.has('select')) {
    const [from, to] = said.get('select').split(',').map((text) => +text * 1e6);
    state.range = [from, to];
    state.selected = new Set();
    for (let i = 0; i < count; i++) if (data.end[i] >= from && data.start[i] <= to) state.selected.add(i);
  }
  state.found = Math.min(asNumber('record', -1), count - 1);
}

function draw() {
  const shown = current();
  byId('time-title').textContent = `${data.metrics[state.y]} over time`;
  byId('scatter-title').textContent = state.x < 0 ? 'scatter' : `${data.metrics[state.y]} against ${data.metrics[state.x]}`;
  drawTime();
  drawLanes('threads', tids, data.tid, (tid) => threadName.get(tid), (i) => colours.cpu.get(data.cpu[i]));
  drawLanes('cpus', cpus, data.cpu, (cpu) => `CPU ${cpu}`, (i) => colours.tid.get(data.tid[i]));
  drawScatter();
  drawStatistics(shown);
  drawRecords(shown);
  writeHash();
}

// ---- what people do

function zoom(canvas) {
  canvas.addEventListener('wheel', (event) => {
    event.preventDefault();
    const width = canvas.getBoundingClientRect().width, factor = Math.exp(event.deltaY / 400);
    const share = Math.min(1, Math.max(0, (event.offsetX - LEFT) / (width - LEFT - RIGHT)));
    const at = state.from + share * (state.to - state.from);
    state.from = Math.max(first, at - (at - state.from) * factor);
    state.to = Math.min(Math.max(last, first + 1), Math.max(state.from + 10, at + (state.to - at) * factor));
    draw();
  }, { passive: false });
}
const timeAt = (canvas, x) => {
  const width = canvas.getBoundingClientRect().width;
  return state.from + (x - LEFT) / (width - LEFT - RIGHT) * (state.to - state.from);
};
// Calls back with the two ends of a drag, and whether the shift key was down; a click has both at one place.
function drag(canvas, done) {
  let start = null;
  canvas.addEventListener('mousedown', (event) => { start = [event.offsetX, event.offsetY]; });
  canvas.addEventListener('mouseup', (event) => {
    if (start) done(start, [event.offsetX, event.offsetY], event.shiftKey);
    start = null;
  });
}
const nearest = (shown, distance) => shown.reduce((best, i) => distance(i) < best[1] ? [i, distance(i)] : best, [-1, Infinity])[0];

// `isAt` says whether a record may be meant by a click at a height.
function timeCanvas(id, isAt) {
  const canvas = byId(id);
  zoom(canvas);
  drag(canvas, ([x0, y0], [x1], shift) => {
    const [a, b] = [timeAt(canvas, Math.min(x0, x1)), timeAt(canvas, Math.max(x0, x1))];
    if (shift) {
      const by = timeAt(canvas, x0) - timeAt(canvas, x1);
      [state.from, state.to] = [state.from + by, state.to + by];
      return draw();
    }
    if (Math.abs(x1 - x0) < 4) {
      const all = [...Array(count).keys()].filter((i) => visible(i) && isAt(i, y0));
      state.found = nearest(all, (i) => Math.max(data.start[i] - a, a - data.end[i], 0));
      return draw();
    }
    state.range = [a, b];
    select((i) => data.end[i] >= a && data.start[i] <= b);
  });
}
timeCanvas('time', (i) => data.values[state.y][i] !== null);
timeCanvas('threads', (i, y) => tids.indexOf(data.tid[i]) === Math.floor(y / LANE));
timeCanvas('cpus', (i, y) => cpus.indexOf(data.cpu[i]) === Math.floor(y / LANE));
drag(byId('scatter'), ([x0, y0], [x1, y1]) => {
  if (state.x < 0) return;
  const box = byId('scatter').getBoundingClientRect(), { has, place } = scatterPlaces(box.width, box.height);
  if (Math.abs(x1 - x0) < 4 && Math.abs(y1 - y0) < 4) {
    state.found = nearest(has, (i) => Math.hypot(place(i)[0] - x0, place(i)[1] - y0));
    if (state.found >= 0) reveal(state.found);
    return draw();
  }
  const within = (value, a, b) => value >= Math.min(a, b) && value <= Math.max(a, b);
  const inside = new Set(has.filter((i) => within(place(i)[0], x0, x1) && within(place(i)[1], y0, y1)));
  state.range = null;
  select((i) => inside.has(i));
});
byId('out').addEventListener('click', () => { [state.from, state.to] = [first, Math.max(last, first + 1)]; draw(); });
byId('none').addEventListener('click', () => { state.selected = null; state.range = null; state.found = -1; draw(); });
byId('colour').addEventListener('change', draw);
for (const axis of ['y', 'x']) {
  byId(axis).addEventListener('change', (event) => { state[axis] = +event.target.value; draw(); });
}
window.addEventListener('resize', draw);

// ---- the start

readHash();
data.metrics.forEach((name, m) => { byId('y').add(new Option(name, m)); byId('x').add(new Option(name, m)); });
[byId('y').value, byId('x').value] = [state.y, state.x];
const filtered = data.filter ? `, those for which ${data.filter}` : '';
byId('about').textContent = [`${count} of ${data.all} records${filtered}`, ...data.remarks].join(' · ');
for (const [tid, name] of [...threadName].slice(0, 40)) {
  const swatch = document.createElement('span');
  swatch.className = 'swatch';
  swatch.style.background = colours.tid.get(tid);
  byId('legend').append(swatch, name);
}
draw();

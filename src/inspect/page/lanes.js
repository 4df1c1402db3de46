// ---- lanes: a time line for each loop, its queue below, and the figures beside it ------------------------

const laneViews = [];
let cursor = null; // seconds before now, under the pointer

function remember(picture) {
  for (const one of picture.groups) {
    for (const lane of one.loops) {
      const key = `${one.name} ${lane.index}`;
      const points = page.lanes.get(key) ?? [];
      points.push({ at: picture.at, busy: lane.utilization, queue: queueOf(lane) });
      while (points.length && points[0].at < picture.at - HISTORY - 2) points.shift();
      page.lanes.set(key, points);
    }
  }
}

// How far the lanes look back: further once there is something to see.
function span() {
  const oldest = Math.min(...[...page.lanes.values()].map((points) => points[0]?.at ?? Infinity));
  const known = page.picture.at - oldest;
  return [30, 60].find((time) => known < time) ?? HISTORY;
}

const queueOf = (lane) => lane.queued ?? lane.pending;

function drawLanes() {
  const shown = group();
  const parent = $('lanes');
  const rows = keep(parent, shown.loops.length, makeLane);
  laneViews.length = rows.length;
  shown.loops.forEach((lane, place) => updateLane(laneViews[place], lane));
  setText($('loops-note'), `${plural(shown.loops.length, 'loop')} · busy above, queue below · ${shown.state}`);
  keep($('axis'), 5, () => h('span')).forEach((mark, place) => {
    const ago = span() * (1 - place / 4);
    setText(mark, ago === 0 ? 'now' : `−${ago} s`);
  });
  drawTimelines();
  drawFigures(shown);
}

function makeLane(place) {
  const view = {
    name: h('b'), thread: h('span', { className: 'thread' }), state: h('span', { className: 'chip' }),
    canvas: h('canvas', { role: 'img' }), busy: h('div', { className: 'busy' }),
    queue: h('div'), live: h('div'), stuck: h('div', { className: 'lane-stuck', hidden: true }),
  };
  view.element = h('div', { className: 'lane', 'data-loop': place },
    h('div', { className: 'lane-name' }, view.name, view.thread, view.state),
    view.canvas,
    h('div', { className: 'lane-figures' }, view.busy, view.queue, view.live),
    view.stuck);
  view.canvas.addEventListener('pointermove', (event) => {
    const box = view.canvas.getBoundingClientRect();
    cursor = span() * (1 - (event.clientX - box.left) / box.width);
    drawLanes();
  });
  view.canvas.addEventListener('pointerleave', () => { cursor = null; drawLanes(); });
  laneViews[place] = view;
  return view.element;
}

function figure(element, value, label) {
  if (element.dataset.label !== label) {
    element.replaceChildren(h('span'), h('small', {}, label));
    element.dataset.label = label;
  }
  setText(element.firstChild, value);
}

function updateLane(view, lane) {
  view.lane = lane;
  setText(view.name, `Loop ${lane.index}`);
  setText(view.thread, lane.thread);
  view.thread.title = lane.thread;
  setText(view.state, lane.state);
  view.state.className = `chip ${{ started: 'good', 'not started': '', terminated: '' }[lane.state] ?? 'warn'}`;
  view.state.hidden = lane.state === 'started';
  const point = cursor == null ? null : pointAt(lane);
  const busy = point ? point.busy : lane.utilization;
  const queue = point ? point.queue : queueOf(lane);
  setText(view.busy, percent(busy));
  paint(view.busy, scaleColor('busy', busy));
  view.busy.dataset.busy = lane.utilization.toFixed(3);
  const old = groupBefore()?.loops[lane.index];
  figure(view.queue, count(queue), point ? `queue, −${cursor.toFixed(0)} s` : 'queue');
  figure(view.live, rate(perSecond(lane.polls, old?.polls)), `polls · ${count(lane.live)} live`);
  view.canvas.setAttribute('aria-label', `Loop ${lane.index}: ${percent(lane.utilization)} busy, queue ${queueOf(lane)}`);
  const stuck = lane.running;
  view.stuck.hidden = !(stuck && stuck.since >= 0.1);
  if (!view.stuck.hidden) {
    setText(view.stuck, `In one poll for ${seconds(stuck.since)}: ${taskTitle(stuck)}${stuck.place ? ` from ${stuck.place}` : ''}`);
  }
}

function taskTitle(task) {
  if (task.id == null) return task.what ?? 'no task';
  return task.name ? `task ${task.id} “${task.name}”` : `task ${task.id}`;
}

function pointAt(lane) {
  const points = page.lanes.get(`${page.chosen} ${lane.index}`) ?? [];
  const at = page.picture.at - cursor;
  const near = points.findLast((point) => point.at <= at) ?? points[0];
  return near && Math.abs(near.at - at) < 2 ? near : null;
}

// The pixels of all lanes. `late` is the time since the last picture, by which the lines move on smoothly.
function drawTimelines(late = 0) {
  if (!page.picture) return;
  const back = span();
  for (const view of laneViews) if (view?.lane) drawTimeline(view, late, back);
}

function drawTimeline(view, late, back) {
  const { canvas, lane } = view;
  const density = Math.min(devicePixelRatio || 1, 2);
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (width === 0) return;
  if (canvas.width !== Math.round(width * density) || canvas.height !== Math.round(height * density)) {
    canvas.width = Math.round(width * density);
    canvas.height = Math.round(height * density);
  }
  const pen = canvas.getContext('2d');
  pen.setTransform(density, 0, 0, density, 0, 0);
  pen.clearRect(0, 0, width, height);
  const dark = isDark();
  const base = height - 18; // busy grows up from here, the queue down
  const x = (at) => width - ((page.picture.at + late - at) / back) * width;
  pen.fillStyle = dark ? '#2b3743' : '#dbe2e9';
  for (let part = 0; part <= 4; part += 1) pen.fillRect(Math.round(width - (part / 4) * width), 0, 1, height);
  for (const share of [0.5, 1]) pen.fillRect(0, Math.round(base - share * (base - 3)), width, 1);
  const points = page.lanes.get(`${page.chosen} ${lane.index}`) ?? [];
  const most = Math.max(4, ...points.map((point) => point.queue));
  points.forEach((point, place) => {
    const next = points[place + 1];
    const end = next && next.at - point.at < 1.5 ? next.at : point.at + 0.25;
    const left = x(point.at);
    const wide = Math.max(x(end) - left + 0.6, 1);
    if (left + wide < 0) return;
    pen.fillStyle = scaleColor('busy', point.busy);
    const tall = Math.max(point.busy * (base - 3), point.busy > 0.002 ? 1.5 : 0);
    pen.fillRect(left, base - tall, wide, tall);
    if (point.queue > 0) {
      pen.fillStyle = dark ? '#5aa5ec' : '#2f7fd1';
      pen.fillRect(left, base + 2, wide, Math.max((point.queue / most) * 15, 2));
    }
  });
  pen.fillStyle = dark ? '#66788a' : '#8694a2';
  pen.fillRect(0, base, width, 1);
  drawStallMarks(pen, lane, x, base, dark);
  if (cursor != null) {
    pen.fillStyle = dark ? '#e7edf3' : '#14202b';
    pen.fillRect(Math.round(width - (cursor / back) * width), 0, 1, height);
  }
  pen.font = '10px system-ui, sans-serif';
  pen.fillStyle = dark ? '#9dabb8' : '#52606d';
  pen.textBaseline = 'bottom';
  if (most > 4) pen.fillText(`max ${count(most)}`, 4, height - 2);
  pen.textBaseline = 'top';
  pen.fillText('100 %', 4, 5);
}

// A mark at the end of each stall that began in the lane.
function drawStallMarks(pen, lane, x, base, dark) {
  const ink = dark ? '#ffffff' : '#14202b';
  for (const stall of group()?.stalls ?? []) {
    if (stall.loop !== lane.index) continue;
    const at = x(page.picture.at - stall.ago);
    if (at < -6) continue;
    pen.fillStyle = ink;
    pen.beginPath();
    pen.moveTo(at - 5, 0);
    pen.lineTo(at + 5, 0);
    pen.lineTo(at, 8);
    pen.fill();
  }
}

const FIGURES = [
  ['polls/s', (now, old) => rate(perSecond(now.polls, old?.polls))],
  ['parks/s', (now, old) => rate(perSecond(now.parks, old?.parks))],
  ['woken by itself', (now, old) => rate(perSecond(now.local_wakes, old?.local_wakes))],
  ['by loops', (now, old) => rate(perSecond(now.remote_wakes, old?.remote_wakes))],
  ['from outside', (now, old) => rate(perSecond(now.outside_wakes, old?.outside_wakes))],
  ['wake delay', (now) => seconds(now.wake_delay)],
  ['I/O events', (now, old) => rate(perSecond(now.io_events, old?.io_events))],
  ['channels', (now) => count(now.channels)],
  ['timers fired', (now, old) => rate(perSecond(now.timers_fired, old?.timers_fired))],
  ['timers armed', (now) => count(now.timers)],
  ['next timer', (now) => (now.next_timer === 0 ? 'due' : now.next_timer == null ? '–' : `in ${seconds(now.next_timer)}`)],
  ['pending', (now) => count(now.pending)],
  ['live', (now) => count(now.live)],
  ['accepted', (now) => count(now.accepted)],
  ['completed', (now) => count(now.completed)],
  ['panicked', (now) => count(now.panicked)],
  ['cancelled', (now) => count(now.cancelled)],
  ['rejected', (now) => count(now.rejected)],
  ['poll p50', (now) => seconds(now.median_poll)],
  ['poll p99', (now) => seconds(now.slow_poll)],
  ['longest poll', (now) => seconds(now.longest_poll)],
];

function drawFigures(shown) {
  const parent = $('figures');
  if (!parent.parentElement.open) return;
  if (!parent.firstChild) {
    const heads = FIGURES.map(([name]) => h('th', { scope: 'col' }, name));
    parent.append(h('table', {}, h('thead', {}, h('tr', {}, h('th', { scope: 'col', className: 'text' }, 'loop'), ...heads)), h('tbody')));
  }
  const makeRow = () => h('tr', {}, h('th', { scope: 'row', className: 'text' }), ...FIGURES.map(() => h('td')));
  const old = groupBefore();
  keep(parent.querySelector('tbody'), shown.loops.length, makeRow).forEach((row, place) => {
    const lane = shown.loops[place];
    setText(row.children[0], String(lane.index));
    FIGURES.forEach(([, text], column) => setText(row.children[column + 1], text(lane, old?.loops[place])));
  });
}

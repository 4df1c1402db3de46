// ---- histograms: how long polls take, and how long tasks wait for theirs ---------------------------------

const PERCENTILES = [['p50', 0.5], ['p90', 0.9], ['p99', 0.99], ['p99.9', 0.999]];
const SHAPE = { width: 440, height: 150, left: 8, right: 8, top: 22, bottom: 22 };

function drawHistograms() {
  const shown = group();
  const old = groupBefore();
  drawHistogram('polls', shown.poll_times, old?.poll_times, 'polls');
  drawHistogram('waits', shown.wake_to_poll, old?.wake_to_poll, 'waits');
}

// What was counted since `old`: bounds are the same in both.
function changed(now, old) {
  if (page.window === 'all') return now.buckets;
  const known = new Map(old?.buckets ?? now.buckets);
  return now.buckets.map(([bound, number]) => [bound, number - (known.get(bound) ?? 0)]).filter(([, number]) => number > 0);
}

function drawHistogram(id, now, old, noun) {
  const parent = $(id);
  if (!now) {
    setText($(`${id}-note`), '');
    return empty(parent, 'This group does not measure time:', 'Builder::measure_time(true)');
  }
  const buckets = changed(now, old);
  const total = buckets.reduce((sum, [, number]) => sum + number, 0);
  const span = page.window === 'all' ? 'since start' : `in the last ${RECENT} s`;
  setText($(`${id}-note`), `${plural(total, noun.slice(0, -1))} ${span} · log scale`);
  if (total === 0) return empty(parent, `No ${noun} ${span}.`);
  filled(parent);
  if (!parent.firstChild) {
    const picture = svg('svg', { viewBox: `0 0 ${SHAPE.width} ${SHAPE.height}`, role: 'img' });
    parent.append(picture, h('dl', { className: 'percentiles' }));
  }
  const quantile = (share) => {
    let sum = 0;
    for (const [bound, number] of buckets) if ((sum += number) >= share * total) return bound;
    return buckets.at(-1)[0];
  };
  const marks = PERCENTILES.map(([name, share]) => [name, quantile(share)]);
  const longest = page.window === 'all' ? now.max : Math.min(buckets.at(-1)[0], now.max);
  const [picture, list] = parent.children;
  drawBars(picture, buckets, marks);
  picture.setAttribute('aria-label', marks.map(([name, time]) => `${name} ${seconds(time)}`).join(', '));
  const all = [...marks.map(([name, time]) => [name, Math.min(time, longest)]), ['longest', longest]];
  keep(list, all.length, () => h('div', {}, h('dt'), h('dd'))).forEach((one, place) => {
    setText(one.children[0], all[place][0]);
    setText(one.children[1], seconds(all[place][1]));
  });
}

function drawBars(picture, buckets, marks) {
  // Whole powers of ten, so that the axis stands still.
  const low = Math.min(-7, Math.floor(Math.log10(buckets[0][0] || 1e-9)));
  const high = Math.max(-2, Math.ceil(Math.log10(buckets.at(-1)[0] || 1e-9)));
  const { width, height, left, right, top, bottom } = SHAPE;
  const x = (time) => left + ((Math.log10(Math.max(time, 1e-9)) - low) / (high - low)) * (width - left - right);
  const most = Math.max(...buckets.map(([, number]) => number));
  const parts = [];
  for (let power = low; power <= high; power += 1) {
    const at = x(10 ** power);
    parts.push(svg('line', { class: 'grid', x1: at, x2: at, y1: top, y2: height - bottom }));
    if ((power - low) % (high - low > 7 ? 2 : 1) === 0) {
      const place = Math.min(Math.max(at, 20), width - 24);
      parts.push(svg('text', { class: 'tick', x: place, y: height - 6 }, axisLabel(power)));
    }
  }
  for (const [bound, number] of buckets) {
    const [from, to] = [x(bound / 1.21), x(bound)];
    const tall = Math.max((Math.log1p(number) / Math.log1p(most)) * (height - top - bottom), 2);
    parts.push(svg('rect', { class: 'bar-shape', x: from, width: Math.max(to - from - 0.7, 1.5), y: height - bottom - tall, height: tall, rx: 1 }));
  }
  let last = -99;
  for (const [name, time] of marks.filter(([name]) => name === 'p50' || name === 'p99')) {
    const at = x(time);
    parts.push(svg('line', { class: 'mark-line', x1: at, x2: at, y1: top - 4, y2: height - bottom }));
    if (at - last > 34) parts.push(svg('text', { class: 'mark-text', x: Math.min(Math.max(at, 14), width - 14), y: top - 8 }, name));
    last = at;
  }
  picture.replaceChildren(...parts);
}

const axisLabel = (power) => {
  const [unit, name] = power >= 0 ? [0, 's'] : power >= -3 ? [-3, 'ms'] : power >= -6 ? [-6, 'µs'] : [-9, 'ns'];
  return `${10 ** (power - unit)} ${name}`;
};

// ---- matrix: which loop wakes the tasks of which, as a heat map ------------------------------------------

function drawMatrix() {
  const shown = group();
  const old = groupBefore();
  const size = shown.loops.length;
  const parent = $('matrix');
  const dense = size > 12;
  if (parent.dataset.size !== String(size)) {
    const corner = h('td', { 'aria-hidden': 'true' });
    const heads = shown.loops.map((one) => h('th', { scope: 'col' }, dense ? String(one.index) : `loop ${one.index}`));
    const rows = ['outside', ...shown.loops.map((one) => (dense ? String(one.index) : `loop ${one.index}`))];
    const body = rows.map((name) => h('tr', {}, h('th', { scope: 'row', className: 'text' }, name), ...shown.loops.map(() => h('td'))));
    parent.replaceChildren(
      h('table', { className: dense ? 'matrix dense' : 'matrix' },
        h('thead', {}, h('tr', {}, corner, ...heads)), h('tbody', {}, ...body)),
      h('p', { className: 'scale' }, 'seldom', h('canvas', { width: 120, height: 10, 'aria-hidden': 'true' }), 'often'));
    parent.dataset.size = String(size);
  }
  const value = (now, then) => (page.window === 'all' ? now : perSecond(now, then ?? (old ? 0 : null)) ?? 0);
  const rows = [
    shown.outside_wakes.map((now, to) => value(now, old?.outside_wakes[to])),
    ...shown.wakes.map((row, from) => row.map((now, to) => value(now, old?.wakes[from]?.[to]))),
  ];
  const most = Math.max(1, ...rows.flat());
  const names = ['outside', ...shown.loops.map((one) => `loop ${one.index}`)];
  parent.querySelectorAll('tbody tr').forEach((row, from) => {
    rows[from].forEach((wakes, to) => {
      const cell = row.children[to + 1];
      const share = wakes <= 0 ? 0 : 0.12 + 0.88 * (Math.log1p(wakes) / Math.log1p(most));
      paint(cell, scaleColor('wakes', share));
      const text = page.window === 'all' ? count(Math.round(wakes)) : rate(wakes);
      setText(cell, wakes <= 0 ? '·' : text);
      cell.title = `${names[from]} woke tasks of loop ${to}: ${text}`;
      cell.dataset.wakes = wakes.toFixed(2);
    });
  });
  setText($('matrix-note'), page.window === 'all' ? 'wakes since start, by row' : 'wakes per second, by row');
  drawScale(parent.querySelector('canvas'));
}

function drawScale(canvas) {
  const theme = isDark() ? 'dark' : 'light';
  if (canvas.dataset.theme === theme) return;
  canvas.dataset.theme = theme;
  const pen = canvas.getContext('2d');
  for (let x = 0; x < 120; x += 1) {
    pen.fillStyle = scaleColor('wakes', x / 119);
    pen.fillRect(x, 0, 1, 10);
  }
}

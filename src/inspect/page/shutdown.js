// ---- shutdown: its time line, loop by loop, and what it still waits for ----------------------------------

const UNTIL = {
  drained: () => 'when no task is left',
  quiet: (end) => (end.quiet ? `when nothing has happened for ${seconds(end.quiet)}` : 'when nothing is queued'),
  now: () => 'at once',
};

function drawShutdown() {
  const shown = group();
  const end = shown.shutdown;
  $('shutdown').hidden = !end;
  if (!end) return;
  const body = $('shutdown-body');
  if (!body.firstChild) body.append(h('p'), h('div', { className: 'course' }), h('div'), h('pre'));
  const [headline, course, rest, report] = body.children;
  const limit = end.timeout == null || end.until === 'now' ? '' : `, after ${seconds(end.timeout)} at the latest`;
  const terms = `It ${end.took == null ? 'is' : 'was'} to end ${UNTIL[end.until](end)}${limit}. `;
  const outcome = end.took == null
    ? `It has taken ${seconds(end.elapsed)} so far.`
    : `It took ${seconds(end.took)} and ended ${end.clean ? 'cleanly' : 'by force'}${shown.ended_ago == null ? '' : `, ${seconds(shown.ended_ago)} ago`}.`;
  setText(headline, terms + outcome);
  const elapsed = end.took ?? end.elapsed;
  const whole = Math.max(elapsed, end.took == null ? end.timeout ?? 0 : 0, 0.001);
  keep(course, end.loops.length, makeCourseRow).forEach((row, place) => {
    const one = end.loops[place];
    const [name, track, text] = row.children;
    setText(name, `loop ${one.index}`);
    const until = one.ended ?? elapsed;
    track.firstChild.style.width = `${Math.min((until / whole) * 100, 100).toFixed(1)}%`;
    const late = end.timeout != null && one.ended == null && elapsed > end.timeout;
    track.className = `track ${one.ended != null ? 'done' : late ? 'late' : ''}`;
    const left = [[one.pending, 'queued'], [one.live, 'live'], [one.channels, 'channels']].filter(([number]) => number > 0);
    setText(text, one.ended != null ? `ended after ${seconds(one.ended)}: ${one.cause}`
      : `${one.state}${left.length ? `: ${left.map(([number, what]) => `${count(number)} ${what}`).join(', ')}` : ''}`);
  });
  drawWaiting(rest, end);
  report.hidden = end.report == null;
  setText(report, end.report ?? '');
}

function makeCourseRow() {
  return h('div', { className: 'course-row' }, h('span'), h('div', { className: 'track' }, h('i')), h('span', { className: 'quiet' }));
}

function drawWaiting(parent, end) {
  const waiting = end.waits_for ?? [];
  parent.hidden = waiting.length === 0 || end.took != null;
  if (parent.hidden) return;
  if (!parent.firstChild) parent.append(h('b', {}, 'Still waits for'), h('ul', { className: 'waits-for' }));
  const more = end.waits_for_more ? [`and ${plural(end.waits_for_more, 'more task')}`] : [];
  const lines = [...waiting, ...more];
  keep(parent.lastChild, lines.length, () => h('li')).forEach((item, place) => setText(item, lines[place]));
}

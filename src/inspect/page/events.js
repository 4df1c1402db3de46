// ---- events: stalls, the newest first ---------------------------------------------------------------------

const ADVICE = {
  computing: 'It computes: yield in between, or move it to an executor group (Builder::without_io).',
  blocked: 'It waits in a system call: use blocking::unblock.',
  starved: 'It is ready and gets no processor: the machine, or the limit of its container, is overcommitted.',
};

function drawStalls() {
  const shown = group();
  const parent = $('stalls');
  if (!shown.settings.watchdog) {
    setText($('stalls-note'), '');
    return empty(parent, 'This group has no watchdog, so its stalls are not seen:', 'Builder::watchdog(Duration::from_millis(100))');
  }
  const stalls = shown.stalls ?? [];
  const total = shown.loops.reduce((sum, lane) => sum + (lane.stalls ?? 0), 0);
  setText($('stalls-note'), total ? `${plural(total, 'poll')} so far took longer than the threshold` : '');
  if (stalls.length === 0) return empty(parent, 'No poll has taken longer than the threshold so far.');
  filled(parent);
  const known = new Map([...parent.children].map((item) => [item.dataset.key, item]));
  const items = stalls.map((stall) => {
    const item = known.get(stall.key) ?? makeStall(stall);
    item.classList.toggle('past', stall.ago > 5);
    // A later report of the same poll knows better how long it takes, and why.
    setText(item.querySelector('b'), `≥ ${seconds(stall.duration)}`);
    setText(item.querySelector('.advice'), ADVICE[stall.kind] ?? 'Whether it computes or waits is not known on this system.');
    setText(item.querySelector('time'), stall.ago < 1 ? 'now' : `${seconds(stall.ago)} ago`);
    return item;
  });
  // Only what is new is inserted: a screen reader says the new one, and not the whole list again.
  items.forEach((item, place) => {
    if (parent.children[place] !== item) parent.insertBefore(item, parent.children[place] ?? null);
  });
  while (parent.children.length > items.length) parent.lastElementChild.remove();
}

// Another group, or the same one after a restart, may count its polls alike.
function forgetStalls() {
  $('stalls').replaceChildren();
  delete $('stalls').dataset.empty;
}

function makeStall(stall) {
  const place = stall.place ? ` from ${stall.place}` : '';
  const shown = { 'data-key': stall.key, 'data-loop': stall.loop, 'data-first': (stall.duration + stall.ago).toFixed(3) };
  return h('li', { className: 'stall new', ...shown },
    h('b'),
    h('span', { className: 'what' }, `loop ${stall.loop}: ${taskTitle(stall)}`, h('span', { className: 'place' }, place)),
    h('time'),
    h('span', { className: 'advice quiet' }));
}

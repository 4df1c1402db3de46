// ---- servers: open connections by loop, and what became of the others ------------------------------------

const SERVER_FIGURES = [
  ['accepted', (one) => count(one.accepted)],
  ['completed', (one) => count(one.completed)],
  ['failed', (one) => count(one.failed)],
  ['timed out', (one) => count(one.timed_out)],
  ['aborted', (one) => count(one.aborted)],
  ['rejected', (one) => count(one.rejected)],
  ['moved', (one) => count(one.moves)],
];

function drawServers() {
  const { servers } = page.picture;
  const parent = $('servers');
  if (servers.length === 0) return empty(parent, 'No server is watched:', 'Inspector::watch_server("name", &handle)');
  filled(parent);
  setText($('servers-note'), plural(servers.reduce((sum, one) => sum + one.connections, 0), 'open connection'));
  keep(parent, servers.length, makeServer).forEach((card, place) => drawServer(card, servers[place]));
}

function makeServer() {
  const show = h('button', { type: 'button' }, 'Show its tasks');
  const card = h('article', { className: 'server' },
    h('h3', {}, h('span'), h('small', { className: 'place' }), h('span', { className: 'chip' })),
    h('p', { className: 'quiet' }),
    h('div', { className: 'open', role: 'img' }),
    h('dl', {}, ...SERVER_FIGURES.map(([name]) => h('div', {}, h('dt', {}, name), h('dd')))),
    h('p', { className: 'quiet' }), h('ul', { className: 'quiet moves' }), show);
  show.addEventListener('click', () => {
    $('task-text').value = card.dataset.place;
    askAgain();
    $('tasks-title').scrollIntoView({ behavior: calmMedia.matches ? 'auto' : 'smooth' });
  });
  return card;
}

function drawServer(card, server) {
  const [title, rates, open, list, error, moves, show] = card.children;
  card.dataset.place = server.place;
  const old = before()?.servers.find((one) => one.name === server.name);
  setText(title.children[0], server.name);
  setText(title.children[1], server.address);
  setText(title.children[2], server.state);
  title.children[2].className = `chip ${{ listening: 'good', stopping: 'warn' }[server.state] ?? ''}`;
  const speed = perSecond(server.accepted, old?.accepted);
  setText(rates, `${plural(server.connections, 'open connection')}${speed == null ? '' : `, ${rate(speed)} accepted`}`);
  const most = Math.max(1, ...server.by_loop);
  keep(open, server.by_loop.length, () => h('div', {}, h('i'), h('span'))).forEach((bar, loop) => {
    bar.firstChild.style.height = `${Math.round((server.by_loop[loop] / most) * 26)}px`;
    setText(bar.lastChild, count(server.by_loop[loop]));
    bar.title = `loop ${loop}: ${plural(server.by_loop[loop], 'connection')}`;
  });
  open.setAttribute('aria-label', server.by_loop.map((number, loop) => `loop ${loop}: ${number}`).join(', '));
  SERVER_FIGURES.forEach(([, text], place) => setText(list.children[place].lastChild, text(server)));
  error.hidden = server.accept_errors === 0 && server.service_panics === 0;
  const panics = server.service_panics ? `${plural(server.service_panics, 'panic')} of the service. ` : '';
  const failed = server.accept_errors ? `${plural(server.accept_errors, 'accept')} failed, the last: ${server.last_error}` : '';
  setText(error, panics + failed);
  moves.hidden = server.decisions.length === 0;
  keep(moves, server.decisions.length, () => h('li')).forEach((item, place) => {
    const one = server.decisions[place];
    setText(item, `${seconds(one.ago)} ago: a connection with ${percent(one.share)} of loop ${one.from} (${percent(one.from_utilization)} busy) to loop ${one.to} (${percent(one.to_utilization)})`);
  });
  show.hidden = !page.picture.groups.some((one) => one.settings.track_tasks);
}

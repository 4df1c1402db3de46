// ---- main: the stream, the tabs, the buttons ---------------------------------------------------------------

let stream = null;
let received = 0;    // when the last picture came
let retry = 0;
let lost = false;    // the notice is about the connection
let passing = 0;     // the timer of a notice that goes by itself

function status(text, kind) {
  setText($('status'), text);
  $('status').className = `pill ${kind}`;
}

function notice(text, bad = false) {
  clearTimeout(passing);
  $('notice').hidden = !text;
  setText($('notice'), text ?? '');
  $('notice').classList.toggle('bad', bad);
}

// A notice that is not about the connection: it stays long enough to be read.
function tell(text, bad = false) {
  notice(text, bad);
  passing = setTimeout(() => notice(null), 12000);
}

function connect() {
  clearTimeout(retry);
  if (stream || document.hidden || page.paused) return;
  stream = new EventSource('/api/stream');
  stream.addEventListener('picture', (event) => receive(JSON.parse(event.data)));
  stream.onerror = () => {
    lost = true;
    status('Reconnecting', 'bad');
    // A browser gives up after an answer that is no stream, such as "too many pages".
    if (stream.readyState === EventSource.CLOSED) {
      disconnect();
      explain();
      retry = setTimeout(connect, 2000);
    } else notice(lossText(), true);
  };
}

const lossText = () => (page.picture ? 'Connection lost. The page reconnects by itself.' : 'No connection yet. The page keeps trying.');

// A stream does not tell why it was refused. A plain request for it does.
async function explain() {
  const asked = new AbortController();
  try {
    const response = await fetch('/api/stream', { signal: asked.signal });
    const reason = response.ok ? lossText() : `The inspector answers: ${(await response.text()).trim()}. The page keeps trying.`;
    if (lost) notice(reason, true);
  } catch {
    if (lost) notice(lossText(), true);
  } finally {
    asked.abort();
  }
}

function disconnect() {
  stream?.close();
  stream = null;
}

function receive(picture) {
  const restarted = page.picture && page.picture.instance !== picture.instance;
  if (restarted) {
    page.past = [];
    page.lanes.clear();
    tasks.answer = null;
    forgetStalls();
  }
  status('Live', 'good');
  if (lost) notice(null);
  lost = false;
  if (restarted) tell('The program was restarted: counts begin anew.');
  page.picture = picture;
  received = performance.now();
  if (!page.past.length || picture.at - page.past.at(-1).at >= 0.9) page.past.push(picture);
  while (page.past.length > 1 && picture.at - page.past[1].at >= RECENT) page.past.shift();
  if (!group()) page.chosen = picture.groups[0]?.name ?? null;
  remember(picture);
  draw();
  if (performance.now() - tasks.asked > ((tasks.answer?.total ?? 0) > 2000 ? 1950 : 950)) askForTasks();
}

function draw() {
  drawTabs();
  const shown = group();
  $('panel').hidden = !shown;
  if (shown) {
    for (const part of [drawShutdown, drawTiles, drawLanes, drawMatrix, drawHistograms, drawStalls, drawTasks]) part();
  } else {
    notice('No group is watched: Inspector::watch("name", &group)');
  }
  drawServers();
  drawActions(shown);
  const { inspector, process } = page.picture;
  setText($('own'), `Process ${process}. The inspector\'s loop is awake for ${(inspector.utilization * 100).toFixed(1)} % of the time, for `
    + `${plural(inspector.streams, 'open page')}, a picture every ${seconds(inspector.period)}; nothing while no page is open.`);
}

function drawTabs() {
  const { groups } = page.picture;
  const make = () => {
    const tab = h('button', { type: 'button', role: 'tab', 'aria-controls': 'panel' }, h('span'), h('span', { className: 'chip' }));
    tab.addEventListener('click', () => choose(tab.dataset.name));
    tab.addEventListener('keydown', (event) => {
      const step = { ArrowRight: 'nextElementSibling', ArrowLeft: 'previousElementSibling' }[event.key];
      if (step && tab[step]) { tab[step].focus(); tab[step].click(); }
    });
    return tab;
  };
  keep($('groups'), groups.length, make).forEach((tab, place) => {
    const one = groups[place];
    tab.dataset.name = one.name;
    const selected = one.name === page.chosen;
    tab.setAttribute('aria-selected', String(selected));
    tab.tabIndex = selected ? 0 : -1;
    tab.id = `tab-${place}`;
    if (selected) $('panel').setAttribute('aria-labelledby', tab.id);
    setText(tab.children[0], one.name);
    const busiest = Math.max(0, ...one.loops.map((lane) => lane.utilization));
    setText(tab.children[1], one.state === 'running' ? percent(busiest) : one.state);
    tab.title = `${one.name}: ${one.state}, busiest loop ${percent(busiest)}`;
  });
}

function choose(name) {
  page.chosen = name;
  tasks.answer = null;
  tasks.offset = 0;
  filled($('tasks'));
  $('tasks').replaceChildren();
  $('task-loop').replaceChildren();
  delete $('matrix').dataset.size;
  forgetStalls();
  draw();
  askForTasks(true);
}

function drawTiles() {
  const shown = group();
  const old = groupBefore();
  const sum = (read) => shown.loops.reduce((total, lane) => total + (read(lane) ?? 0), 0);
  const oldSum = (read) => old?.loops.reduce((total, lane) => total + (read(lane) ?? 0), 0);
  const speed = (read) => (page.window === 'all' ? [count(sum(read)), 'in all'] : [rate(perSecond(sum(read), oldSum(read))), '']);
  const busiest = shown.loops.reduce((best, lane) => (lane.utilization > best.utilization ? lane : best), shown.loops[0]);
  const longest = Math.max(...shown.loops.map((lane) => lane.longest_poll ?? 0));
  const stalls = sum((lane) => lane.stalls);
  const tiles = [
    ['Busiest loop', percent(busiest.utilization), `loop ${busiest.index}`],
    ['Live tasks', count(sum((lane) => lane.live)), ''],
    ['Queued', count(sum(queueOf)), ''],
    ['Polls', ...speed((lane) => lane.polls)],
    ['Cross-loop wakes', ...speed((lane) => lane.remote_wakes)],
    ['Timers fired', speed((lane) => lane.timers_fired)[0], shown.settings.track_tasks ? `${count(sum((lane) => lane.timers))} armed` : ''],
    ['Sockets', count(sum((lane) => lane.channels)), ''],
    ['Longest poll', shown.settings.measure_time ? seconds(longest) : '–', shown.settings.measure_time ? '' : 'not measured'],
    ['Stalls', shown.settings.watchdog ? count(stalls) : '–', shown.settings.watchdog ? '' : 'no watchdog'],
    ['Panics', count(sum((lane) => lane.panicked)), ''],
  ];
  const make = () => h('div', {}, h('dt'), h('dd', {}, h('span'), ' ', h('small')));
  keep($('tiles'), tiles.length, make).forEach((tile, place) => {
    const [name, value, note] = tiles[place];
    setText(tile.children[0], name);
    setText(tile.children[1].children[0], value);
    setText(tile.children[1].children[1], note);
    tile.className = (name === 'Panics' || name === 'Stalls') && !['0', '–'].includes(value) ? 'alert' : '';
  });
}

// Dump and trace are of the group that is shown. What it does not record cannot be had.
function drawActions(shown) {
  const name = shown ? encodeURIComponent(shown.name) : '';
  const records = Boolean(shown?.settings.flight_recorder);
  setProps($('dump'), { href: `/api/dump?group=${name}` });
  const frozen = shown?.settings.recorder_frozen ? 'Frozen: what came before the last stall. ' : '';
  const why = records ? null : 'This group has no flight recorder: Builder::flight_recorder(65536)';
  setProps($('trace'), { href: records ? `/api/trace?group=${name}` : null, 'aria-disabled': records ? null : 'true', title: why ?? (frozen || null) });
  $('perfetto').disabled = !records;
  $('perfetto').title = why ?? `${frozen}Hands the trace to ui.perfetto.dev in a new tab; it stays in this browser`;
  setText($('trace'), frozen ? 'Trace (frozen)' : 'Trace');
}

// The one thing that touches another site, and only by a click: its page gets the trace from this one.
async function openInPerfetto() {
  const site = 'https://ui.perfetto.dev';
  const other = window.open(site);
  if (!other) return tell('The browser did not allow the new tab: allow it for this page, or download the trace.', true);
  const response = await fetch(`/api/trace?group=${encodeURIComponent(page.chosen)}`);
  if (!response.ok) return tell(`There is no trace: ${await response.text()}`, true);
  const buffer = await response.arrayBuffer();
  const ask = setInterval(() => other.postMessage('PING', site), 100);
  const stop = setTimeout(() => {
    clearInterval(ask);
    tell('Perfetto does not answer. Download the trace, and open it there.', true);
  }, 30000);
  window.addEventListener('message', function answered(event) {
    if (event.origin !== site || event.source !== other || event.data !== 'PONG') return;
    window.removeEventListener('message', answered);
    clearInterval(ask);
    clearTimeout(stop);
    other.postMessage({ perfetto: { buffer, title: `loopgroup: ${page.chosen}`, fileName: 'loopgroup-trace.json' } }, site);
  });
}

const THEMES = { auto: ['light', 'as the system'], light: ['dark', 'light'], dark: ['auto', 'dark'] };

function showTheme(theme) {
  document.documentElement.dataset.theme = theme;
  const [, name] = THEMES[theme];
  $('theme').setAttribute('aria-label', `Theme: ${name}`);
  setText($('theme'), { auto: '◐ Auto', light: '☀ Light', dark: '☾ Dark' }[theme]);
  if (page.picture) draw();
}

function start() {
  // The token, if there was one, is a cookie by now: it need not be seen over a shoulder.
  if (location.search) history.replaceState(null, '', '/');
  showTheme('auto');
  $('theme').addEventListener('click', () => showTheme(THEMES[document.documentElement.dataset.theme][0]));
  darkMedia.addEventListener('change', () => showTheme(document.documentElement.dataset.theme));
  $('pause').addEventListener('click', () => {
    page.paused = !page.paused;
    $('pause').setAttribute('aria-pressed', String(page.paused));
    setText($('pause'), page.paused ? 'Resume' : 'Pause');
    if (page.paused) { disconnect(); status('Paused', 'warn'); } else connect();
  });
  $('perfetto').addEventListener('click', () => openInPerfetto().catch(() => tell('The trace could not be loaded.', true)));
  $('window').addEventListener('change', (event) => { page.window = event.target.value; if (page.picture) draw(); });
  document.querySelector('.figures').addEventListener('toggle', () => { if (page.picture) draw(); });
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) { disconnect(); status('Paused', 'warn'); } else connect();
  });
  addEventListener('pagehide', disconnect);
  addEventListener('pageshow', connect);
  addEventListener('resize', () => drawTimelines());
  startTasks();
  // The lanes move on between two pictures, if there are few of them and nobody minds motion.
  let drawn = 0;
  const animate = (now) => {
    const late = (now - received) / 1000;
    if (stream && page.picture && !calmMedia.matches && laneViews.length <= 8 && now - drawn > 45 && late < 1) {
      drawn = now;
      drawTimelines(late);
    }
    requestAnimationFrame(animate);
  };
  requestAnimationFrame(animate);
  connect();
}

start();

// ---- tasks: sorted, filtered and cut into pages by the server, so that ten thousand cost no more than fifty ---

const TASKS_PER_PAGE = 50;
const COLUMNS = [
  ['id', 'Task', 'text', (task) => String(task.id)],
  ['name', 'Name', 'text wide', nameOf],
  ['state', 'State', 'text', (task) => task.state],
  ['loop', 'Loop', '', (task) => String(task.loop)],
  ['waits', 'Waits for', 'text wide', (task) => task.waits.join(', ') || '–'],
  ['polls', 'Polls', '', (task) => count(task.polls)],
  ['busy', 'Busy', '', (task) => seconds(task.busy)],
  ['longest', 'Longest', '', (task) => seconds(task.longest)],
  ['wakes', 'Wakes', '', (task) => count(task.wakes)],
  ['idle', 'Since poll', '', (task) => seconds(task.idle)],
  ['age', 'Age', '', (task) => seconds(task.age)],
  ['size', 'Size', '', (task) => bytes(task.size)],
  ['place', 'Spawned at', 'text wide place', (task) => task.place],
];
const TEXT_COLUMNS = ['name', 'state', 'place', 'waits'];

const tasks = { sort: 'busy', order: 'desc', offset: 0, answer: null, asking: false, again: false, asked: 0, open: null };

// The name; of a task without one, that of the server that it belongs to.
function nameOf(task) {
  const server = page.picture.servers.find((one) => one.place === task.place);
  return task.name ?? (server ? `(${server.name})` : '–');
}

// Asks for the tasks that are to be shown; once a second, and at once when the question changes.
async function askForTasks(changed = false) {
  const shown = group();
  // A question that has changed while another one is under way is asked after it.
  tasks.again ||= changed && tasks.asking;
  if (!shown || !shown.settings.track_tasks || tasks.asking || document.hidden) return;
  tasks.asking = true;
  tasks.asked = performance.now();
  const question = new URLSearchParams({
    group: page.chosen, sort: tasks.sort, order: tasks.order, offset: tasks.offset, limit: TASKS_PER_PAGE,
    q: $('task-text').value.trim(), loop: $('task-loop').value, state: $('task-state').value,
  });
  try {
    const response = await fetch(`/api/tasks?${question}`);
    if (!response.ok) throw new Error(await response.text());
    const answer = await response.json();
    if (answer.group === page.chosen) tasks.answer = answer;
    drawTasks();
  } catch {
    // The stream says that the connection is lost.
  } finally {
    tasks.asking = false;
  }
  if (tasks.again) {
    tasks.again = false;
    askForTasks();
  }
}

function askAgain() {
  tasks.offset = 0;
  askForTasks(true);
}

function drawTasks() {
  const shown = group();
  const parent = $('tasks');
  const tracked = Boolean(shown?.settings.track_tasks);
  $('task-tools').hidden = !tracked;
  if (!tracked) {
    setText($('tasks-note'), '');
    return empty(parent, 'This group does not keep a list of its tasks:', 'Builder::track_tasks(true)');
  }
  drawLoopChoice(shown);
  const { answer } = tasks;
  if (!answer || answer.group !== page.chosen) {
    return shown.state === 'ended' ? empty(parent, 'The group has ended: it has no tasks.') : undefined;
  }
  const last = answer.offset + answer.tasks.length;
  const most = answer.matching === answer.total ? '' : ` of ${count(answer.total)}`;
  setText($('tasks-note'), `${plural(answer.matching, 'task')}${most}`);
  setText($('task-range'), answer.matching ? `${answer.offset + 1}–${last} of ${answer.matching}` : 'none');
  $('task-back').disabled = answer.offset === 0;
  $('task-next').disabled = last >= answer.matching;
  if (answer.tasks.length === 0) {
    const none = shown.state === 'ended' ? 'The group has ended: it has no tasks.' : 'There are no tasks.';
    return empty(parent, answer.total ? 'No task matches the filter.' : none);
  }
  filled(parent);
  if (!parent.firstChild) parent.append(makeTaskTable());
  parent.querySelectorAll('th').forEach((head) => {
    const sorted = head.dataset.column === tasks.sort;
    head.setAttribute('aria-sort', sorted ? { asc: 'ascending', desc: 'descending' }[tasks.order] : 'none');
  });
  keep(parent.querySelector('tbody'), answer.tasks.length, makeTaskRow).forEach((row, place) => {
    const task = answer.tasks[place];
    row.task = task;
    row.dataset.task = task.id;
    COLUMNS.forEach(([name, , , text], column) => {
      const cell = row.children[column];
      if (name === 'state') drawState(cell, task);
      else setText(cell, text(task));
      if (name === 'name' || name === 'place' || name === 'waits') cell.title = text(task);
    });
  });
  const body = parent.querySelector('tbody');
  if (!body.querySelector('[tabindex="0"]')) reach(body.firstElementChild);
  if (tasks.open != null) drawDetail(answer.tasks.find((task) => task.id === tasks.open));
}

function drawLoopChoice(shown) {
  const choice = $('task-loop');
  const names = ['any', ...shown.loops.map((lane) => String(lane.index))];
  if (choice.children.length === names.length) return;
  choice.replaceChildren(...names.map((name) => h('option', { value: name === 'any' ? '' : name }, name)));
}

function drawState(cell, task) {
  const warnings = task.warnings.join(' · ');
  const key = `${task.state} ${warnings}`;
  if (cell.dataset.key === key) return;
  cell.dataset.key = key;
  const kind = { running: 'bad', queued: 'warn' }[task.state] ?? '';
  cell.replaceChildren(h('span', { className: `chip ${kind}` }, task.state),
    ...task.warnings.map((text) => h('span', { className: 'badge' }, text)));
}

function makeTaskTable() {
  const heads = COLUMNS.map(([name, title, kind]) => h('th', { scope: 'col', className: kind.includes('text') ? 'text' : '', 'data-column': name },
    h('button', { type: 'button', onclick: () => sortBy(name) }, title)));
  return h('table', {}, h('thead', {}, h('tr', {}, ...heads)), h('tbody'));
}

function makeTaskRow() {
  const row = h('tr', { className: 'row', tabindex: '-1' }, ...COLUMNS.map(([, , kind]) => h('td', { className: kind })));
  row.addEventListener('click', () => openDetail(row.task));
  row.addEventListener('focus', () => reach(row));
  row.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); openDetail(row.task); }
    const step = { ArrowDown: 'nextElementSibling', ArrowUp: 'previousElementSibling' }[event.key];
    if (step && row[step]) { event.preventDefault(); row[step].focus(); }
  });
  return row;
}

// One row is a stop of the Tab key; the arrow keys move on from there.
function reach(row) {
  for (const other of row.parentElement.children) other.tabIndex = other === row ? 0 : -1;
}

function sortBy(name) {
  const down = tasks.sort === name ? tasks.order !== 'desc' : !TEXT_COLUMNS.includes(name);
  tasks.sort = name;
  tasks.order = down ? 'desc' : 'asc';
  askAgain();
}

function openDetail(task) {
  tasks.open = task.id;
  drawDetail(task);
  $('detail').showModal();
}

function drawDetail(task) {
  setText($('detail-note'), task ? '' : 'It is not in the table any more: it has ended, or the table shows other tasks. The figures are the last ones known.');
  if (!task) return;
  setText($('detail-title'), taskTitle(task));
  const lines = [
    ['State', `${task.state} on loop ${task.loop}`],
    ['Waits for', task.waits.join('\n') || '–'],
    ['Spawned at', task.place],
    ['Age', seconds(task.age)],
    ['Polls', `${task.polls}, busy ${seconds(task.busy)}, longest ${seconds(task.longest)}`],
    ['Last poll', task.idle == null ? 'never' : `${seconds(task.idle)} ago`],
    ['Wakes', `${task.wakes}, by itself ${task.self_wakes}`],
    ['Last wake', task.last_wake ? `${task.last_wake}, ${seconds(task.last_wake_ago)} ago` : '–'],
    ['Future', `${task.size} bytes`],
    ...(task.warnings.length ? [['Note', task.warnings.join(', ')]] : []),
  ];
  const list = $('detail-body');
  const parts = keep(list, lines.length * 2, (place) => h(place % 2 ? 'dd' : 'dt'));
  lines.forEach(([name, text], place) => {
    setText(parts[place * 2], name);
    setText(parts[place * 2 + 1], text);
  });
}

function startTasks() {
  let typing = 0;
  $('task-text').addEventListener('input', () => {
    clearTimeout(typing);
    typing = setTimeout(askAgain, 150);
  });
  for (const id of ['task-loop', 'task-state']) $(id).addEventListener('change', askAgain);
  const turn = (pages) => { tasks.offset = Math.max((tasks.answer?.offset ?? 0) + pages * TASKS_PER_PAGE, 0); askForTasks(true); };
  $('task-back').addEventListener('click', () => turn(-1));
  $('task-next').addEventListener('click', () => turn(1));
  $('detail-close').addEventListener('click', () => $('detail').close());
  $('detail').addEventListener('close', () => { tasks.open = null; });
  $('detail').addEventListener('click', (event) => { if (event.target === $('detail')) $('detail').close(); });
}

// ---- base: elements, numbers, colours, and what the page knows -------------------------------------------

const $ = (id) => document.getElementById(id);

// Makes an element. Children are elements or text; text is never markup.
function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  setProps(element, props);
  element.append(...children.filter((child) => child != null));
  return element;
}

function setProps(element, props) {
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value === false || value == null) element.removeAttribute(name === 'className' ? 'class' : name);
    else element.setAttribute(name === 'className' ? 'class' : name, value === true ? '' : value);
  }
}

function svg(tag, attributes = {}, text) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text != null) element.textContent = text;
  return element;
}

// Sets a text only if it has changed: an unchanged page is not laid out again.
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Keeps as many children as there are items: makes those that are missing, removes the others.
function keep(parent, count, make) {
  while (parent.children.length > count) parent.lastElementChild.remove();
  while (parent.children.length < count) parent.append(make(parent.children.length));
  return [...parent.children];
}

const UNITS = [[1, 's'], [1e-3, 'ms'], [1e-6, 'µs'], [1e-9, 'ns']];

function digits(number) {
  return number >= 100 ? number.toFixed(0) : number >= 10 ? number.toFixed(1) : number.toFixed(2);
}

function seconds(time) {
  if (time == null) return '–';
  if (time <= 0) return '0 s';
  if (time >= 86400) return `${(time / 86400).toFixed(1)} d`;
  if (time >= 3600) return `${(time / 3600).toFixed(1)} h`;
  if (time >= 120) return `${(time / 60).toFixed(1)} min`;
  const [unit, name] = UNITS.find(([least]) => time >= least * 0.9995) ?? UNITS[3];
  return `${digits(time / unit)} ${name}`;
}

function count(number) {
  if (number == null) return '–';
  for (const [unit, name] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e4, 'k']]) {
    if (number >= unit) return `${digits(number / (unit === 1e4 ? 1e3 : unit))}${name}`;
  }
  return Number.isInteger(number) ? String(number) : number >= 10 ? number.toFixed(0) : number.toFixed(1);
}

const rate = (number) => (number == null ? '–' : `${count(Math.round(number * 10) / 10)}/s`);
const percent = (share) => `${Math.round(share * 100)} %`;
const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? '' : 's'}`;
const bytes = (size) => (size >= 10240 ? `${(size / 1024).toFixed(0)} KiB` : `${size} B`);

const darkMedia = matchMedia('(prefers-color-scheme: dark)');
const calmMedia = matchMedia('(prefers-reduced-motion: reduce)');

function isDark() {
  const theme = document.documentElement.dataset.theme;
  return theme === 'dark' || (theme === 'auto' && darkMedia.matches);
}

// From idle to busy, and from never to often. Both grow steadily darker, or lighter on dark, so that they can be
// told apart without the hue; every colour has its number beside it.
const SCALES = {
  busy: {
    light: ['#dfe7ee', '#f4d06f', '#ea8a3c', '#c0201c'],
    dark: ['#24313d', '#7d6420', '#d9772b', '#ff5546'],
  },
  wakes: {
    light: ['#edf2f8', '#a9cbee', '#3d80c6', '#0b3d7a'],
    dark: ['#1b2631', '#1f4f80', '#4a98dd', '#d3e9ff'],
  },
};

function scaleColor(name, share) {
  const stops = SCALES[name][isDark() ? 'dark' : 'light'];
  const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const index = Math.min(Math.floor(place), stops.length - 2);
  const channel = (color, at) => parseInt(color.slice(at, at + 2), 16);
  const mixed = [1, 3, 5].map((at) => {
    const [from, to] = [channel(stops[index], at), channel(stops[index + 1], at)];
    return Math.round(from + (to - from) * (place - index));
  });
  return `rgb(${mixed.join(' ')})`;
}

// Black or white, whichever is easier to read on a colour.
function inkOn(color) {
  const linear = color.match(/\d+/g).map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  const luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  return luminance > 0.18 ? '#0c141b' : '#ffffff';
}

function paint(element, color) {
  if (element.dataset.color === color) return;
  element.dataset.color = color;
  element.style.background = color;
  element.style.color = inkOn(color);
}

// What an empty part says: why, and the setting that changes it.
function empty(parent, text, setting) {
  const key = text + (setting ?? '');
  if (parent.dataset.empty === key) return;
  parent.replaceChildren(h('p', { className: 'empty' }, text, setting ? ' ' : null, setting ? h('code', {}, setting) : null));
  parent.dataset.empty = key;
}

function filled(parent) {
  if (parent.dataset.empty == null) return;
  parent.replaceChildren();
  delete parent.dataset.empty;
}

// How long the lanes look back, and how old the picture is that rates are counted from.
const HISTORY = 120;
const RECENT = 30;

const page = {
  picture: null,      // the last one
  chosen: null,       // the name of the group that is shown
  past: [],           // older pictures of the last RECENT seconds, thinned out
  lanes: new Map(),   // by group and loop: the points of the time line
  window: 'recent',
  paused: false,
};

const group = () => page.picture?.groups.find((one) => one.name === page.chosen);

// The group as it was about RECENT seconds ago, or as early as is known; nothing at all for "since start".
function before() {
  if (page.window === 'all') return null;
  return page.past.find((old) => old.groups.some((one) => one.name === page.chosen)) ?? null;
}

function groupBefore() {
  return before()?.groups.find((one) => one.name === page.chosen) ?? null;
}

// Per second in the window: of the change since `old`, or of everything since the inspector began to look.
function perSecond(now, old) {
  const earlier = page.past[0];
  const since = page.window === 'all' ? null : before() ?? earlier;
  if (!since || old == null) return null;
  const time = page.picture.at - since.at;
  return time > 0.2 ? Math.max(now - old, 0) / time : null;
}

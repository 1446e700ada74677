// The page: chats, their messages, and what people do with them.

import * as api from './api.js';
import * as store from './store.js';
import * as settings from './settings.js';
import * as view from './view.js';
import { $, h, announce, fitHeight, newID } from './dom.js';
import { explain } from './explain.js';
import { read as readFile } from './files.js';
import { answer, newAnswer } from './run.js';
import * as list from './list.js';

let models = [];
let chat = null; // the one that is shown
let views = new Map(); // of its messages
let attached = []; // files of the next message
let editing = null; // the message that the next one replaces, with all behind it
const runs = new Map(); // chats that are answered: id → {chat, control}

/** The shortest time between two drawings of an answer that comes, in milliseconds. */
const drawTime = 60;

/** How often an answer that comes is kept, in milliseconds: what a tab that is closed may lose. */
const saveTime = 2000;

function newChat() {
  return { id: newID(), title: '', created: Date.now(), updated: Date.now(), model: '', settings: store.defaults(), messages: [] };
}

// ---- what is shown

function show(c) {
  if (editing) leaveEditing();
  chat = c;
  views = new Map();
  $('messages').replaceChildren(...c.messages.map((m) => shown(m)));
  $('title').textContent = c.title || 'New chat';
  document.title = c.title ? `${c.title} – etc` : 'etc';
  if (models.some((m) => m.id === c.model)) $('model').value = c.model;
  settings.show(c.settings);
  list.mark(c.id);
  drawState();
  $('log').scrollTop = $('log').scrollHeight;
}

function shown(message) {
  const v = view.viewOf(message);
  views.set(message, v);
  return v.element;
}

/** Shows what of the page depends on whether the chat is answered. */
function drawState() {
  const busy = runs.has(chat.id);
  const last = chat.messages.at(-1);
  $('stop').hidden = !busy;
  $('send').hidden = busy;
  $('welcome').hidden = chat.messages.length > 0;
  $('log').setAttribute('aria-busy', String(busy));
  for (const [m, v] of views) v.element.classList.toggle('last', m === last);
}

/** Draws the log, and keeps its end in sight where it was. */
function keepEnd(draw) {
  const log = $('log');
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  draw();
  if (atEnd) log.scrollTop = log.scrollHeight;
}

function notice(text) {
  $('notice').textContent = text;
  $('notice').hidden = text === '';
}

// ---- answers

async function save(c) {
  if (c.deleted) return;
  c.updated = Date.now();
  try {
    await store.put(c);
  } catch (e) {
    notice(`The browser could not keep the chat (${e.message}). Delete old chats, or save them to a file in Settings.`);
  }
  list.note(c);
  list.mark(chat.id);
}

/** Answers the chat that is shown. */
async function run() {
  const mine = chat;
  const about = models.find((m) => m.id === $('model').value);
  if (!about) {
    await loadModels();
    if (models.length === 0) return;
    return run();
  }
  mine.model = about.id;
  store.lastModel.set(about.id);
  const message = newAnswer(about.id, !about.loaded);
  const control = new AbortController();
  runs.set(mine.id, { chat: mine, control });
  mine.messages.push(message);
  keepEnd(() => $('messages').append(shown(message)));
  $('log').scrollTop = $('log').scrollHeight;
  drawState();
  announce('The answer is being written.');
  let timer = 0;
  const draw = () => {
    timer = 0;
    if (mine === chat) keepEnd(() => views.get(message)?.update());
  };
  const saved = save(mine);
  const saver = setInterval(() => { if (!mine.deleted) store.put(mine).catch(() => {}); }, saveTime);
  await answer({ chat: mine, message, about, key: store.key.get(), signal: control.signal,
    changed: () => { timer ||= setTimeout(draw, drawTime); } });
  clearTimeout(timer);
  clearInterval(saver);
  runs.delete(mine.id);
  draw();
  if (mine === chat) drawState();
  announce({ stopped: 'Stopped.', error: '', length: 'The answer was cut.' }[message.end] ?? 'The answer is complete.');
  await saved;
  await save(mine);
  if (message.end !== 'error') about.loaded = true;
  if (message.status === 401) askKey();
  if (message.status === 404) loadModels();
}

function stop() {
  runs.get(chat.id)?.control.abort();
}

/** Leaves the messages as they are. */
function leaveEditing() {
  editing = null;
  notice('');
  $('message').value = '';
  fitHeight($('message'));
  setFiles([]);
}

/** Takes messages from this one on out of the chat. */
function cutAt(message) {
  const at = chat.messages.indexOf(message);
  for (const m of chat.messages.splice(at)) {
    views.get(m)?.element.remove();
    views.delete(m);
  }
  drawState();
}

async function send() {
  const text = $('message').value.trim();
  if ((text === '' && attached.length === 0) || runs.has(chat.id)) return;
  notice('');
  if (editing) cutAt(editing);
  editing = null;
  const message = { role: 'user', content: text, files: attached };
  chat.messages.push(message);
  if (!chat.title) {
    chat.title = (text || attached[0].name).split('\n')[0].slice(0, 60);
    $('title').textContent = chat.title;
    document.title = `${chat.title} – etc`;
  }
  $('messages').append(shown(message));
  $('message').value = '';
  fitHeight($('message'));
  setFiles([]);
  await run();
}

view.begin({
  regenerate(message) {
    if (runs.has(chat.id)) return;
    cutAt(message);
    $('message').focus();
    run();
  },
  edit(message) {
    stop();
    editing = message;
    $('message').value = message.content;
    setFiles(message.files || []);
    fitHeight($('message'));
    $('message').focus();
    notice('Sending replaces this message and what follows it. Escape keeps them.');
  },
  result(message, call, text) {
    call.result = text;
    views.get(message).update();
    if (message.calls.every((c) => c.result !== undefined)) run();
  },
});

// ---- models and the key

async function loadModels() {
  try {
    models = await api.models(store.key.get());
  } catch (e) {
    if (e.status === 401) {
      askKey();
      return;
    }
    const { text, advice } = explain(e);
    notice(`${text} ${advice}`);
    return;
  }
  notice('');
  const select = $('model');
  select.replaceChildren(...models.map((m) => h('option', { value: m.id }, m.id)));
  select.disabled = false;
  const wanted = [chat.model, store.lastModel.get()].find((id) => models.some((m) => m.id === id));
  if (wanted) select.value = wanted;
}

/** Shows the key in Settings, where a server asks for one. */
function showKeyField() {
  $('key-field').hidden = $('key-hint').hidden = false;
}

/** Asks for the API key; the server has said that it needs one. */
function askKey() {
  showKeyField();
  $('ask-key-wrong').hidden = !store.key.get();
  if (!$('ask-key').open) $('ask-key').showModal();
  $('asked-key').value = '';
  $('asked-key').focus();
}

$('ask-key').addEventListener('close', () => {
  const key = $('asked-key').value.trim();
  if (!key) {
    notice('The server asks for an API key: give it in Settings.');
    return;
  }
  store.key.set(key);
  $('key').value = key;
  loadModels().then(() => $('message').focus());
});

// ---- files

function setFiles(files) {
  attached = files;
  $('files').hidden = files.length === 0;
  $('files').replaceChildren(...files.map((f) => h('li', {}, h('span', {}, f.name),
    h('button', { type: 'button', className: 'plain', 'aria-label': `Remove ${f.name}`,
      onclick: () => { setFiles(attached.filter((x) => x !== f)); $('message').focus(); } }, 'Remove'))));
}

async function addFiles(files) {
  notice('');
  for (const file of files) {
    try {
      const f = await readFile(file);
      setFiles([...attached, f]);
      announce(`${f.name} is attached.`);
    } catch (e) {
      notice(e.message);
    }
  }
  $('message').focus();
}

// ---- what people do

$('composer').addEventListener('submit', (e) => {
  e.preventDefault();
  send();
});
$('message').addEventListener('keydown', (e) => {
  if (e.key !== 'Enter' || e.shiftKey || e.isComposing) return;
  e.preventDefault();
  send();
});
$('message').addEventListener('input', () => fitHeight($('message')));
$('message').addEventListener('paste', (e) => {
  if (e.clipboardData.files.length === 0) return;
  e.preventDefault();
  addFiles([...e.clipboardData.files]);
});
$('stop').addEventListener('click', () => {
  stop();
  $('message').focus();
});
$('attach').addEventListener('click', () => $('file').click());
$('file').addEventListener('change', async () => {
  const files = [...$('file').files];
  $('file').value = '';
  await addFiles(files);
});
addEventListener('dragover', (e) => e.preventDefault());
addEventListener('drop', (e) => {
  e.preventDefault();
  addFiles([...e.dataTransfer.files]);
});
addEventListener('keydown', (e) => {
  if (e.key !== 'Escape' || document.querySelector('dialog[open]')) return;
  if (list.close()) return;
  if (editing) leaveEditing();
  else stop();
});
document.addEventListener('visibilitychange', async () => {
  if (document.hidden) return;
  await list.load(); // other tabs may have changed it
  list.mark(chat.id);
});
addEventListener('etc-colours', () => {
  for (const v of views.values()) v.colour?.();
});
$('model').addEventListener('change', () => {
  chat.model = $('model').value;
  store.lastModel.set(chat.model);
});

$('open-settings').addEventListener('click', () => {
  $('key').value = store.key.get();
  $('settings').showModal();
});
settings.begin((s) => {
  chat.settings = s;
  store.setDefaults(s);
  if (chat.messages.length > 0 && !runs.has(chat.id)) save(chat);
});
$('theme').value = store.theme.get();
$('theme').addEventListener('change', () => {
  store.theme.set($('theme').value);
  document.documentElement.dataset.theme = $('theme').value;
});
$('key').addEventListener('change', () => {
  store.key.set($('key').value.trim());
  loadModels();
});

/** Asks before something is deleted. */
function confirmed(text) {
  const dialog = $('confirm');
  $('confirm-text').textContent = text;
  dialog.showModal();
  // Not the event close: it comes later than the answer, and may come to a question that was asked behind it.
  return new Promise((resolve) => {
    dialog.oncancel = () => resolve(false);
    dialog.firstElementChild.onsubmit = (e) => resolve(e.submitter.value === 'yes');
  });
}

$('save-chats').addEventListener('click', async () => {
  const text = JSON.stringify(await store.all(), null, 2);
  const url = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  h('a', { href: url, download: 'etc-chats.json' }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
});
$('delete-chats').addEventListener('click', async () => {
  if (!await confirmed('Delete all chats? They are in this browser only, and cannot be brought back.')) return;
  for (const { chat: c, control } of runs.values()) {
    c.deleted = true;
    control.abort();
  }
  chat.deleted = true;
  await store.clear();
  await list.load();
  show(newChat());
});

list.begin({
  async open(id) {
    const alive = runs.get(id)?.chat;
    const c = alive ?? await store.get(id);
    if (!c) { // another tab has deleted it
      list.forget(id);
      return;
    }
    for (const m of alive ? [] : c.messages) if (m.role === 'assistant') m.end ||= 'stopped'; // by the end of its tab
    show(c);
  },
  async remove(id, title) {
    if (!await confirmed(`Delete “${title}”?`)) return;
    const alive = runs.get(id);
    if (alive) alive.chat.deleted = true;
    if (id === chat.id) chat.deleted = true;
    alive?.control.abort();
    await store.remove(id);
    list.forget(id);
    if (id === chat.id) show(newChat());
    $('new-chat').focus();
  },
  create() {
    show(newChat());
    $('message').focus();
  },
});

// ---- the beginning

await store.open();
show(newChat());
await list.load();
await loadModels();
if (store.key.get()) showKeyField();
if (!document.querySelector('dialog[open]')) $('message').focus();

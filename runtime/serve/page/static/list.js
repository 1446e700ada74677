// The list of chats, which is beside the page where it is wide, and over it where it is narrow.

import { $, h } from './dom.js';
import * as store from './store.js';

/** What the list asks for: {open(id), remove(id, title), create()}. */
let actions = {};
const titles = new Map(); // id → {title, updated}
let items = new Map(); // id → {item, button}

export function begin(a) {
  actions = a;
  $('new-chat').addEventListener('click', () => {
    close();
    actions.create();
  });
  $('open-chats').addEventListener('click', openList);
  $('close-chats').addEventListener('click', close);
  matchMedia('(min-width: 48rem)').addEventListener('change', close);
}

/** Shows the list over the page. */
function openList() {
  $('chats').classList.add('open');
  $('open-chats').setAttribute('aria-expanded', 'true');
  $('main').inert = true;
  $('new-chat').focus();
}

/** Hides the list, where it is over the page; says whether it was. */
export function close() {
  if (!$('chats').classList.contains('open')) return false;
  $('chats').classList.remove('open');
  $('open-chats').setAttribute('aria-expanded', 'false');
  $('main').inert = false;
  $('open-chats').focus();
  return true;
}

/** Reads what chats there are. */
export async function load() {
  titles.clear();
  for (const c of await store.all()) titles.set(c.id, { title: c.title, updated: c.updated });
  draw();
}

/** Notes what a chat is called and when it was changed. */
export function note(chat) {
  titles.set(chat.id, { title: chat.title, updated: chat.updated });
  draw();
}

/** Forgets a chat. */
export function forget(id) {
  titles.delete(id);
  draw();
}

/** Draws the list, the newest chat first. */
function draw() {
  const focused = document.activeElement?.dataset?.chat;
  items = new Map();
  const newest = [...titles].sort(([, a], [, b]) => b.updated - a.updated);
  $('chat-list').replaceChildren(...newest.map(([id, { title }]) => {
    const button = h('button', { type: 'button', className: 'plain open', onclick: () => {
      close();
      actions.open(id);
    } }, title || 'New chat');
    button.dataset.chat = id;
    const remove = h('button', { type: 'button', className: 'plain remove', 'aria-label': `Delete ${title}`,
      onclick: () => actions.remove(id, title) }, 'Delete');
    const item = h('li', {}, button, remove);
    items.set(id, { item, button });
    return item;
  }));
  $('no-chats').hidden = titles.size > 0;
  if (focused) items.get(focused)?.button.focus();
}

/** Marks the chat that is shown. */
export function mark(id) {
  for (const [x, { item, button }] of items) {
    item.classList.toggle('current', x === id);
    if (x === id) button.setAttribute('aria-current', 'page');
    else button.removeAttribute('aria-current');
  }
}

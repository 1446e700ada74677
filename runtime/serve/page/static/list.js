// The list of chats, which is beside the page where it is wide, and over it where it is narrow.

import { $, h } from './dom.js';
import * as store from './store.js';

/** What the list asks for: {open(chat), remove(chat), create()}. */
let actions = {};
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

/** Draws the list. */
export async function draw() {
  const chats = await store.all();
  const focused = document.activeElement?.dataset?.chat;
  items = new Map();
  $('chat-list').replaceChildren(...chats.map((c) => {
    const button = h('button', { type: 'button', className: 'plain open', onclick: () => {
      close();
      actions.open(c);
    } }, c.title || 'New chat');
    button.dataset.chat = c.id;
    const remove = h('button', { type: 'button', className: 'plain remove', 'aria-label': `Delete ${c.title}`,
      onclick: () => actions.remove(c) }, 'Delete');
    const item = h('li', {}, button, remove);
    items.set(c.id, { item, button });
    return item;
  }));
  $('no-chats').hidden = chats.length > 0;
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

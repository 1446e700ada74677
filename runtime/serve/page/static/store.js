// What the browser keeps: chats in IndexedDB, settings in localStorage, the API key in sessionStorage. Where a browser
// keeps nothing (private windows of some), chats live as long as the page.

const memory = new Map();
let database = null;

function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** Opens the database; false where the browser has none. */
export async function open() {
  try {
    const request = indexedDB.open('etc', 1);
    request.onupgradeneeded = () => request.result.createObjectStore('chats', { keyPath: 'id' });
    database = await done(request);
    return true;
  } catch {
    return false;
  }
}

const chats = (mode) => database.transaction('chats', mode).objectStore('chats');

/** All chats, the newest first. */
export async function all() {
  const list = database ? await done(chats('readonly').getAll()) : [...memory.values()];
  return list.sort((a, b) => b.updated - a.updated);
}

/** The chat of an id, undefined where there is none (any more). */
export async function get(id) {
  return database ? done(chats('readonly').get(id)) : structuredClone(memory.get(id));
}

/** Keeps a chat. A copy is kept, so that what follows can change it. */
export async function put(chat) {
  if (database) await done(chats('readwrite').put(chat));
  else memory.set(chat.id, structuredClone(chat));
}

export async function remove(id) {
  if (database) await done(chats('readwrite').delete(id));
  else memory.delete(id);
}

export async function clear() {
  if (database) await done(chats('readwrite').clear());
  else memory.clear();
}

/** Reads and writes a value of a storage; without the storage it is forgotten with the page. */
function value(storage, name) {
  let last = '';
  return {
    get() {
      try {
        return storage().getItem(name) || '';
      } catch {
        return last;
      }
    },
    set(v) {
      last = v;
      try {
        if (v) storage().setItem(name, v);
        else storage().removeItem(name);
      } catch {
        // It is forgotten with the page.
      }
    },
  };
}

export const key = value(() => sessionStorage, 'etc.key');
export const theme = value(() => localStorage, 'etc.theme');
export const lastModel = value(() => localStorage, 'etc.model');
const settings = value(() => localStorage, 'etc.settings');

/** The settings of new chats. */
export function defaults() {
  try {
    return JSON.parse(settings.get()) || {};
  } catch {
    return {};
  }
}

export function setDefaults(v) {
  settings.set(JSON.stringify(v));
}

// Small helpers for the document.

/** The element of an id, which is in index.html. */
export const $ = (id) => document.getElementById(id);

/**
 * Makes an element. Properties whose names begin with "on" are listeners, those with "-" are attributes, others are
 * properties of the element; children are elements or texts, and null is none.
 */
export function h(tag, properties = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name.startsWith('on')) e.addEventListener(name.slice(2), value);
    else if (name.includes('-') || name === 'role') e.setAttribute(name, value);
    else e[name] = value;
  }
  e.append(...children.flat().filter((c) => c !== null && c !== undefined));
  return e;
}

/** Tells people who listen to a screen reader. */
export function announce(text) {
  $('status').textContent = text;
}

/** Makes a text area as high as its text, within what the style allows. */
export function fitHeight(area) {
  area.style.height = 'auto';
  area.style.height = `${area.scrollHeight + area.offsetHeight - area.clientHeight}px`;
}

/** Writes a number with so many digits behind the point, as the browser's language does. */
export const number = (v, digits = 0) => v.toLocaleString(undefined, { maximumFractionDigits: digits });

/** A name that nothing else has. It works without a secure context too. */
export function newID() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => b.toString(16).padStart(2, '0')).join('');
}

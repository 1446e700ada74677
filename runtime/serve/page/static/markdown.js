// Markdown that a model wrote, as elements. This is the one place where text becomes HTML. HTML in the text is shown as
// text, images are shown as links, and what Markdown makes of the rest goes through DOMPurify with a list of what is allowed.

import { Marked } from './vendor/marked.js';
import { h, announce } from './dom.js';

const purify = window.DOMPurify;

const escapes = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
const escaped = (text) => text.replace(/[&<>"']/g, (c) => escapes[c]);

/** The longest code that is coloured, in characters. */
const longestColoured = 50000;

let highlighter = null;

let loading = null;

/** Loads what colours code, with the first code; the event etc-colours says that it is there. */
function loadHighlighter() {
  loading ??= import('./vendor/highlight.js').then((m) => {
    highlighter = m.default;
    dispatchEvent(new Event('etc-colours'));
  }, () => {});
}

function coloured(text, language) {
  if (!highlighter) loadHighlighter();
  if (!highlighter || text.length > longestColoured || !highlighter.getLanguage(language)) return escaped(text);
  return highlighter.highlight(text, { language, ignoreIllegals: true }).value;
}

const marked = new Marked({
  gfm: true,
  renderer: {
    html: ({ text }) => escaped(text),
    image: ({ href, text }) => `<a href="${escaped(href)}">${escaped(text || href)}</a>`,
    checkbox: ({ checked }) => (checked ? '☑ ' : '☐ '),
    code({ text, lang }) {
      const language = (lang || '').match(/^[\w+#.-]*/)[0].toLowerCase();
      return `<pre><code class="language-${escaped(language) || 'text'}">${coloured(text, language)}\n</code></pre>`;
    },
  },
});

const allowed = {
  ALLOWED_TAGS: ['a', 'blockquote', 'br', 'code', 'del', 'em', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'hr', 'li', 'ol', 'p', 'pre',
    'span', 'strong', 'table', 'tbody', 'td', 'th', 'thead', 'tr', 'ul'],
  ALLOWED_ATTR: ['align', 'class', 'href', 'start'],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ADD_URI_SAFE_ATTR: ['align', 'start'], // their values are no addresses
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

purify.addHook('uponSanitizeAttribute', (node, data) => {
  if (data.attrName === 'class') data.keepAttr = /^(hljs-|language-)/.test(data.attrValue);
});

purify.addHook('afterSanitizeAttributes', (node) => {
  if (node.nodeName !== 'A') return;
  if (!node.hasAttribute('href')) return;
  node.setAttribute('target', '_blank');
  node.setAttribute('rel', 'noopener noreferrer nofollow');
});

/** Gives code a head with its language and a button that copies it, and wide things a place of their own to scroll in. */
function dress(fragment) {
  for (const pre of fragment.querySelectorAll('pre')) {
    const code = pre.querySelector('code');
    const language = (code?.className || '').replace('language-', '');
    const name = language && language !== 'text' ? language : 'code';
    const copy = h('button', { type: 'button', className: 'plain', 'aria-label': `Copy ${name}`,
      onclick: () => copyText(code.textContent, copy) }, 'Copy');
    pre.tabIndex = 0;
    pre.setAttribute('aria-label', name);
    pre.setAttribute('role', 'region');
    const block = h('div', { className: 'code-block' }, h('div', { className: 'code-head' }, h('span', {}, name), copy));
    pre.replaceWith(block);
    block.append(pre);
  }
  for (const table of fragment.querySelectorAll('table')) {
    const block = h('div', { className: 'wide', tabIndex: 0, role: 'region', 'aria-label': 'Table' });
    table.replaceWith(block);
    block.append(table);
  }
  return fragment;
}

/** Copies a text; the button says that it did. */
export async function copyText(text, button) {
  let said = 'Copied';
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    said = 'Not allowed'; // the clipboard is for pages of https and of this machine
  }
  const was = button.textContent;
  button.textContent = said;
  announce(said);
  setTimeout(() => { button.textContent = was; }, 1500);
}

/** Markdown that grows: parts that did not change keep their elements, so selections and positions stay. */
export class Prose {
  constructor() {
    this.element = h('div', { className: 'prose' });
    this.parts = [];
    this.text = '';
  }

  set(text) {
    this.text = text;
    const tokens = marked.lexer(text);
    const linked = Object.keys(tokens.links).length > 0; // names of links may be explained later
    const colours = highlighter !== null;
    let same = 0;
    while (!linked && same < Math.min(this.parts.length, tokens.length) && this.parts[same].raw === tokens[same].raw &&
      (this.parts[same].colours === colours || tokens[same].type !== 'code')) same++;
    for (const part of this.parts.splice(same)) part.element.remove();
    for (const token of tokens.slice(same)) {
      const html = marked.parser(Object.assign([token], { links: tokens.links }));
      const element = h('div', { className: 'part' }, dress(purify.sanitize(html, allowed)));
      this.parts.push({ raw: token.raw, element, colours });
      this.element.append(element);
    }
  }
}

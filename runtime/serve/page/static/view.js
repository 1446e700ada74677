// The messages of a chat, as elements.

import { h, number } from './dom.js';
import { Prose, copyText } from './markdown.js';

/** What a message's view asks for: {regenerate(message), edit(message), result(message, call, text), tryAgain(message)}. */
let actions = {};

export function begin(a) {
  actions = a;
}

/** Makes the view of a message: {element, update()}. update shows what has changed in the message. */
export function viewOf(message) {
  return message.role === 'user' ? new UserView(message) : new AnswerView(message);
}

class UserView {
  constructor(message) {
    const files = (message.files || []).map((f) => h('details', { className: 'file' },
      h('summary', {}, f.name), h('pre', { tabIndex: 0, role: 'region', 'aria-label': f.name }, f.text)));
    this.element = h('article', { className: 'message user', 'aria-label': 'You' },
      ...files,
      message.content ? h('div', { className: 'said' }, message.content) : null,
      h('footer', {}, h('button', { type: 'button', className: 'plain', onclick: () => actions.edit(message) }, 'Edit')));
  }

  update() {}
}

class AnswerView {
  constructor(message) {
    this.message = message;
    this.prose = new Prose();
    this.thoughtText = h('div', { className: 'thought-text' });
    this.thoughtHead = h('summary');
    this.thoughts = h('details', { className: 'thoughts', hidden: true }, this.thoughtHead, this.thoughtText);
    this.waiting = h('p', { className: 'waiting', hidden: true }, h('span', { className: 'dot', 'aria-hidden': 'true' }));
    this.waitingText = h('span');
    this.waiting.append(this.waitingText);
    this.calls = h('div', { className: 'calls' });
    this.callViews = [];
    this.note = h('p', { className: 'note quiet', hidden: true });
    this.error = h('div', { className: 'error', role: 'alert', hidden: true });
    this.stats = h('span', { className: 'stats' });
    this.copy = h('button', { type: 'button', className: 'plain', onclick: () => copyText(message.content, this.copy) }, 'Copy');
    this.regenerate = h('button', { type: 'button', className: 'plain regenerate',
      onclick: () => actions.regenerate(message) }, 'Regenerate');
    this.footer = h('footer', {}, this.copy, this.regenerate, this.stats);
    this.element = h('article', { className: 'message answer', 'aria-label': `Answer of ${message.model}` },
      this.thoughts, this.prose.element, this.waiting, this.calls, this.note, this.error, this.footer);
    this.update();
  }

  update() {
    const m = this.message;
    const busy = !m.end;
    this.element.setAttribute('aria-busy', String(busy));
    this.#thoughts(m, busy);
    if (m.content !== this.prose.text) this.prose.set(m.content);
    this.waiting.hidden = !busy || Boolean(m.content || m.reasoning || m.calls.length);
    this.waitingText.textContent = m.loading ? `Loading ${m.model}…` : 'Waiting for the first word…';
    this.#calls(m, busy);
    const notes = { stopped: 'Stopped.', length: 'Cut: the answer reached max tokens, or the end of the model\'s context.' };
    this.note.textContent = notes[m.end] || '';
    this.note.hidden = !notes[m.end];
    this.#error(m.error);
    this.copy.hidden = busy || !m.content;
    this.regenerate.hidden = busy || Boolean(m.error?.again); // which has a button of its own
    this.stats.textContent = statistics(m);
  }

  /** Shows code in colours, once what colours it is there. */
  colour() {
    this.prose.set(this.prose.text);
  }

  #thoughts(m, busy) {
    this.thoughts.hidden = !m.reasoning;
    if (!m.reasoning) return;
    if (this.thoughtText.textContent !== m.reasoning) this.thoughtText.textContent = m.reasoning;
    const thinking = busy && !m.content && m.calls.length === 0;
    const time = m.thoughtSeconds >= 0.1 ? ` for ${number(m.thoughtSeconds, 1)} s` : '';
    this.thoughtHead.textContent = thinking ? 'Thinking…' : `Thought${time}`;
  }

  #calls(m, busy) {
    for (const [i, call] of m.calls.entries()) {
      this.callViews[i] ??= this.#newCall(call);
      const v = this.callViews[i];
      v.name.textContent = call.name;
      const text = busy ? call.arguments : pretty(call.arguments);
      if (v.args.textContent !== text) v.args.textContent = text;
      const answered = call.result !== undefined;
      v.form.hidden = busy || answered;
      v.result.hidden = !answered;
      v.result.textContent = answered ? call.result : '';
    }
  }

  #newCall(call) {
    const name = h('strong');
    const args = h('pre', { tabIndex: 0, role: 'region', 'aria-label': 'Arguments' });
    const result = h('pre', { className: 'result', tabIndex: 0, role: 'region', 'aria-label': 'Result' });
    const input = h('textarea', { rows: 2, required: true, placeholder: `What ${call.name || 'the function'} gives`, 'aria-label': `Result of ${call.name}` });
    const form = h('form', { className: 'result-form', hidden: true, onsubmit: (e) => {
      e.preventDefault();
      actions.result(this.message, call, input.value);
    } }, input, h('button', { type: 'submit' }, 'Give the result'));
    this.calls.append(h('section', { className: 'call', 'aria-label': `Call of ${call.name}` },
      h('h3', {}, 'Calls ', name), args, form, result));
    return { name, args, form, result };
  }

  #error(error) {
    this.error.hidden = !error;
    if (!error || this.shown === error) return;
    this.shown = error;
    this.error.replaceChildren(h('p', {}, h('strong', {}, error.text), ' ', error.advice));
    if (error.again) {
      this.error.append(h('button', { type: 'button', onclick: () => actions.regenerate(this.message) }, 'Try again'));
    }
  }
}

/** JSON with line ends; other text as it is. */
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** Tokens per second behind the first one; of answers that came at once, from the question on. */
function speed(count, s) {
  const long = s.last - s.first >= 5;
  return 1000 * (long ? (count - 1) / (s.last - s.first) : count / (s.last - s.begun));
}

/** What an answer took. While it comes, the number of its parts stands for that of its tokens. */
function statistics(m) {
  const s = m.stats;
  const parts = [];
  const count = s.tokens ?? s.parts;
  if (count > 0) parts.push(`${number(count)} tokens`);
  if (s.last) parts.push(`${number(speed(count, s), 1)} tokens/s`);
  if (s.first && m.end) parts.push(`first after ${number((s.first - s.begun) / 1000, 2)} s`);
  if (s.prompt !== undefined) parts.push(`prompt ${number(s.prompt)}, ${number(s.cached)} cached`);
  if (s.seed && m.end) parts.push(`seed ${s.seed}`);
  return parts.join(' · ');
}

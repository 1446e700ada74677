// The settings of a chat: what they are, their dialog, and what they are in a request.

import { $, h } from './dom.js';

/** The numbers of a request, in the order in which they are shown. */
const numbers = [
  { name: 'temperature', label: 'Temperature', min: 0, hint: '0: always the likeliest' },
  { name: 'top_p', label: 'Top-p', min: 0, max: 1, hint: 'above 0, at most 1' },
  { name: 'top_k', label: 'Top-k', step: 1, hint: '0: all tokens' },
  { name: 'min_p', label: 'Min-p', min: 0, max: 1, hint: '0 to 1' },
  { name: 'repeat_penalty', label: 'Repeat penalty', min: 0, hint: '1: none' },
  { name: 'presence_penalty', label: 'Presence penalty', hint: '0: none' },
  { name: 'frequency_penalty', label: 'Frequency penalty', hint: '0: none' },
  { name: 'max_tokens', label: 'Max tokens', min: 1, step: 1, hint: 'of an answer' },
  { name: 'seed', label: 'Seed', step: 1, min: Number.MIN_SAFE_INTEGER, max: Number.MAX_SAFE_INTEGER, hint: 'the same seed, the same answer' },
];

const texts = ['system', 'think', 'stops', 'tools'];

/** The functions that a text names, in the shape of a request; throws words. */
export function parseTools(text) {
  if (text.trim() === '') return [];
  let list;
  try {
    list = JSON.parse(text);
  } catch (e) {
    throw new Error(`Tools: this is not JSON: ${e.message}`);
  }
  if (!Array.isArray(list)) list = [list];
  return list.map((t, i) => {
    const f = t?.function ?? t;
    if (typeof f?.name !== 'string' || f.name === '') throw new Error(`Tools: function ${i + 1} has no name`);
    return { type: 'function', function: f };
  });
}

/** What the settings are in a request. */
export function parameters(s) {
  const out = {};
  for (const { name } of numbers) if (s[name] !== undefined) out[name] = s[name];
  if (s.think) out.reasoning_effort = s.think === 'on' ? 'medium' : 'none';
  const stops = (s.stops || '').split('\n').filter((t) => t !== '');
  if (stops.length > 0) out.stop = stops;
  const tools = parseTools(s.tools || '');
  if (tools.length > 0) out.tools = tools;
  return out;
}

/** Makes the fields of the dialog; changed(settings) is called when a field that is right has changed. */
export function begin(changed) {
  for (const n of numbers) {
    const id = `set-${n.name}`;
    const input = h('input', { type: 'number', id, step: n.step ?? 'any', min: n.min, max: n.max, placeholder: 'default',
      inputMode: 'decimal', 'aria-describedby': `${id}-hint` });
    $('sampling').append(h('div', { className: 'field' }, h('label', { htmlFor: id }, n.label), input,
      h('p', { className: 'quiet', id: `${id}-hint` }, n.hint)));
  }
  $('settings').addEventListener('input', () => {
    const s = read();
    if (s) changed(s);
  });
  $('settings').addEventListener('submit', (e) => {
    if (read()) return;
    e.preventDefault();
    $('settings').querySelector('[aria-invalid=true]').focus();
  });
}

/** Reads the fields; null while one of them is wrong, which is shown at it. */
function read() {
  const s = {};
  let right = true;
  for (const { name } of numbers) {
    const input = $(`set-${name}`);
    const ok = input.checkValidity();
    input.setAttribute('aria-invalid', String(!ok));
    right &&= ok;
    if (ok && input.value !== '') s[name] = Number(input.value);
  }
  for (const name of texts) if ($(name).value !== '') s[name] = $(name).value;
  const hint = $('tools-hint');
  let wrong = '';
  try {
    parseTools($('tools').value);
  } catch (e) {
    wrong = e.message;
  }
  $('tools').setAttribute('aria-invalid', String(wrong !== ''));
  hint.classList.toggle('wrong', wrong !== '');
  hint.textContent = wrong || 'A JSON array of functions. Calls are shown, and you type what they give.';
  return right && !wrong ? s : null;
}

/** Shows settings in the fields. */
export function show(s) {
  for (const { name } of numbers) {
    $(`set-${name}`).value = s[name] ?? '';
    $(`set-${name}`).setAttribute('aria-invalid', 'false');
  }
  for (const name of texts) $(name).value = s[name] ?? '';
}

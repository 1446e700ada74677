// One answer: the request for it, and how its events change the message.

import * as api from './api.js';
import { explain } from './explain.js';
import { withFiles } from './files.js';
import { parameters } from './settings.js';

/** A message for an answer that is to come. */
export function newAnswer(model, loading) {
  return { role: 'assistant', model, loading, content: '', reasoning: '', calls: [], end: '',
    stats: { begun: performance.now(), parts: 0 } };
}

/** The messages of a request. Calls that were cut have no arguments that a template could write, and are left out. */
export function requestMessages(chat) {
  const out = [];
  if (chat.settings.system) out.push({ role: 'system', content: chat.settings.system });
  for (const m of chat.messages) {
    if (m.role === 'user') {
      const content = withFiles(m.content, m.files);
      if (out.at(-1)?.role === 'user') out.at(-1).content += `\n\n${content}`; // the answer between was stopped at once
      else out.push({ role: 'user', content });
      continue;
    }
    const calls = m.calls.filter((c) => c.result !== undefined);
    if (!m.content && calls.length === 0) continue;
    const said = { role: 'assistant', content: m.content };
    if (m.reasoning) said.reasoning_content = m.reasoning;
    if (calls.length > 0) {
      said.tool_calls = calls.map((c) => ({ id: c.id, type: 'function', function: { name: c.name, arguments: c.arguments } }));
    }
    out.push(said, ...calls.map((c) => ({ role: 'tool', tool_call_id: c.id, content: c.result })));
  }
  return out;
}

/** Asks for an answer and writes it into the message; changed() is called after each event. */
export async function answer({ chat, message, about, key, signal, changed }) {
  const messages = requestMessages({ ...chat, messages: chat.messages.filter((m) => m !== message) });
  let reason = '';
  try {
    const body = { model: message.model, messages, ...parameters(chat.settings) };
    for await (const event of api.chat(body, key, signal)) {
      if (event.seed) message.stats.seed = event.seed;
      if (event.delta) add(message, event.delta);
      if (event.usage) addUsage(message.stats, event.usage);
      reason = event.reason || reason;
      changed();
    }
    message.end = reason || 'stop';
  } catch (e) {
    if (e.name === 'AbortError') {
      message.end = 'stopped';
      return;
    }
    message.end = 'error';
    message.error = explain(e, about);
    message.status = e.status;
  }
}

function addUsage(stats, usage) {
  stats.tokens = usage.completion_tokens;
  stats.prompt = usage.prompt_tokens;
  stats.cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
}

/** Adds a delta of a chat completion to a message. */
function add(message, delta) {
  const { stats } = message;
  if (!delta.content && !delta.reasoning_content && !delta.tool_calls) return;
  message.loading = false;
  stats.last = performance.now();
  stats.first ??= stats.last;
  stats.parts++;
  if (delta.reasoning_content) {
    message.reasoning += delta.reasoning_content;
    message.thoughtSeconds = (stats.last - stats.first) / 1000;
  }
  if (delta.content) message.content += delta.content;
  for (const c of delta.tool_calls || []) {
    const call = (message.calls[c.index] ??= { id: '', name: '', arguments: '' });
    if (c.id) call.id = c.id;
    if (c.function?.name) call.name = c.function.name;
    call.arguments += c.function?.arguments || '';
  }
}

// Every kind of answer against OpenAI's own OpenAPI document, of one version, which is fetched when this runs; ETC_OPENAPI names
// another place of it, a URL or a file. Without it the tests are skipped. They run against the server of clients.test.mjs, whose
// model calls no tools, and against that of tools.test.mjs.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import test from 'node:test';
import Ajv from 'ajv/dist/2019.js';
import formats from 'ajv-formats';
import { get } from './fetch.mjs';

const url = process.env.ETC_URL;
const pinned = ['https://raw.githubusercontent.com/openai/openai-openapi/f85dbe223d40e1a31cba812ab2d755c7e98a92a3/openapi.json',
  'bbfd19abcde0e7412da99378deb2a959ccdd3a812f97c9e35901921e8e973f9a'];
const place = process.env.ETC_OPENAPI || pinned[0];
const messages = [{ role: 'user', content: 'What is the capital of France?' }];
const tools = [{ type: 'function', function: { name: 'weather',
  parameters: { type: 'object', properties: { city: { enum: ['Paris', 'Rome'] } }, required: ['city'], additionalProperties: false } } }];

// load reads the document.
async function load() {
  if (!/^https?:/.test(place)) return JSON.parse(await readFile(place, 'utf8'));
  return JSON.parse(await get(place, place === pinned[0] ? pinned[1] : ''));
}

// plain makes JSON Schema of what OpenAPI 3.0 has otherwise: nullable.
function plain(v) {
  if (Array.isArray(v)) return v.map(plain);
  if (v === null || typeof v !== 'object') return v;
  const { nullable, ...rest } = v;
  const out = Object.fromEntries(Object.entries(rest).map(([k, x]) => [k, plain(x)]));
  delete out.discriminator;
  return nullable === true ? { anyOf: [out, { type: 'null' }] } : out;
}

let ajv, why;
const events = {}; // the schemas of the events of responses, by type
try {
  const document = await load();
  ajv = formats(new Ajv({ strict: false, allErrors: false, validateFormats: true, logger: false }));
  for (const { $ref } of document.components.schemas.ResponseStreamEvent.anyOf) {
    const name = $ref.split('/').at(-1);
    for (const type of document.components.schemas[name].properties.type.enum) events[type] = name;
  }
  ajv.addSchema({ components: { schemas: plain(document.components.schemas) } }, 'openai');
} catch (e) {
  why = `the document cannot be had: ${e.message}`;
}

// check validates a value by a schema of the document.
function check(name, value) {
  const validate = ajv.getSchema(`openai#/components/schemas/${name}`);
  assert.ok(validate, `the document has no schema ${name}`);
  assert.ok(validate(value), `${name}: ${ajv.errorsText(validate.errors, { separator: '\n' })}\n${JSON.stringify(value, null, 1)}`);
}

async function post(path, body) {
  const r = await fetch(url + path, { method: 'POST', body: JSON.stringify(body) });
  return { status: r.status, value: await r.json() };
}

// stream gives the data of the events of an answer.
async function stream(path, body) {
  const r = await fetch(url + path, { method: 'POST', body: JSON.stringify({ ...body, stream: true }) });
  assert.equal(r.status, 200);
  return (await r.text()).split('\n').filter((l) => l.startsWith('data: ') && l !== 'data: [DONE]').map((l) => JSON.parse(l.slice(6)));
}

const chats = {
  plain: {}, logprobs: { logprobs: true, top_logprobs: 2 }, two: { n: 2, max_tokens: 5 },
  schema: { response_format: { type: 'json_object' }, max_tokens: 9 },
  thoughts: { chat_template_kwargs: { enable_thinking: true }, max_tokens: 30 }, call: { tools, tool_choice: 'required', max_tokens: 100 },
};
for (const [name, more] of Object.entries(chats)) {
  test(`chat: ${name}`, { skip: why }, async () => {
    const r = await post('/v1/chat/completions', { messages, ...more });
    if (r.status === 400 && name === 'call') return; // a model without calls
    assert.equal(r.status, 200, JSON.stringify(r.value));
    check('CreateChatCompletionResponse', r.value);
    for (const e of await stream('/v1/chat/completions', { messages, ...more, stream_options: { include_usage: true } })) {
      check('CreateChatCompletionStreamResponse', e);
    }
  });
}

test('completions', { skip: why }, async () => {
  for (const more of [{}, { logprobs: 2 }, { n: 2 }]) {
    check('CreateCompletionResponse', (await post('/v1/completions', { prompt: 'The capital', ...more })).value);
    for (const e of await stream('/v1/completions', { prompt: 'The capital', ...more })) {
      // The document has one schema for an answer and for its parts. Parts before the last one have no reason, as those of
      // OpenAI's server, though it asks for a text.
      for (const c of e.choices) c.finish_reason ??= 'stop';
      check('CreateCompletionResponse', e);
    }
  }
});

test('responses', { skip: why }, async () => {
  const flat = tools.map((t) => ({ type: 'function', strict: true, ...t.function }));
  for (const more of [{}, { max_output_tokens: 3 }, { top_logprobs: 2, include: ['message.output_text.logprobs'] },
    { chat_template_kwargs: { enable_thinking: true }, max_output_tokens: 30 },
    { tools: flat, tool_choice: 'required', parallel_tool_calls: false, max_output_tokens: 100 }]) {
    const r = await post('/v1/responses', { input: 'What is the capital of France?', ...more });
    if (r.status === 400 && more.tools) continue; // a model without calls
    assert.equal(r.status, 200, JSON.stringify(r.value));
    check('Response', r.value);
    for (const e of await stream('/v1/responses', { input: 'Hi', ...more })) check(events[e.type], e);
  }
});

test('models and errors', { skip: why }, async () => {
  check('ListModelsResponse', await (await fetch(url + '/v1/models')).json());
  check('Model', await (await fetch(url + '/v1/models/qwen')).json());
  for (const [path, body] of [['/v1/chat/completions', {}], ['/v1/responses', { input: 'Hi', frobnicate: 1 }],
    ['/v1/completions', { prompt: 'x', model: 'none' }]]) {
    const r = await post(path, body);
    assert.ok(r.status >= 400);
    check('ErrorResponse', r.value);
  }
});

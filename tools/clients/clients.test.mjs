// Clients that others wrote, against a server at ETC_URL with the model "qwen" of testdata/checkpoints/qwen35moe-chat.
import assert from 'node:assert/strict';
import test from 'node:test';
import OpenAI from 'openai';
import Anthropic from '@anthropic-ai/sdk';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, streamText } from 'ai';
import { ChatOpenAI } from '@langchain/openai';
import Instructor from '@instructor-ai/instructor';
import { z } from 'zod';

const url = process.env.ETC_URL;
const model = 'qwen';
const question = 'What is the capital of France?';
const answer = 'The capital of France is Paris.';
const messages = [{ role: 'user', content: question }];
const openai = new OpenAI({ baseURL: url + '/v1', apiKey: 'none', maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: 'none', maxRetries: 0 });
const schema = {
  type: 'object', properties: { city: { enum: ['Paris', 'Rome'] }, n: { type: 'integer', minimum: 0, maximum: 9 } },
  required: ['city', 'n'], additionalProperties: false,
};

test('openai: chat', async () => {
  const r = await openai.chat.completions.create({ model, messages, temperature: 0, logprobs: true, top_logprobs: 2 });
  assert.equal(r.choices[0].message.content, answer);
  assert.equal(r.choices[0].finish_reason, 'stop');
  assert.equal(r.choices[0].logprobs.content.map((t) => t.token).join(''), answer);
  assert.equal(r.usage.total_tokens, r.usage.prompt_tokens + r.usage.completion_tokens);
});

test('openai: a stream, with usage', async () => {
  const stream = await openai.chat.completions.create(
    { model, messages, temperature: 0, stream: true, stream_options: { include_usage: true } });
  let text = '', usage;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? '';
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, answer);
  assert.ok(usage.completion_tokens > 0);
});

test('openai: the helper that gathers a stream', async () => {
  const runner = openai.chat.completions.stream({ model, messages, temperature: 0 });
  assert.equal(await runner.finalContent(), answer);
});

test('openai: json_schema', async () => {
  const r = await openai.chat.completions.create({ model, messages, temperature: 1, seed: 3,
    response_format: { type: 'json_schema', json_schema: { name: 'city', strict: true, schema } } });
  const v = JSON.parse(r.choices[0].message.content);
  assert.ok(['Paris', 'Rome'].includes(v.city) && Number.isInteger(v.n));
});

test('openai: seeds', async () => {
  const ask = (seed) => openai.chat.completions.create(
    { model, messages: [{ role: 'user', content: 'Tell me' }], temperature: 3, top_p: 1, top_k: 0, seed, n: 2, max_tokens: 12 });
  const [a, b, c] = await Promise.all([ask(5), ask(5), ask(6)]);
  assert.deepEqual(a.choices.map((x) => x.message.content), b.choices.map((x) => x.message.content));
  assert.notDeepEqual(a.choices.map((x) => x.message.content), c.choices.map((x) => x.message.content));
});

test('openai: responses', async () => {
  const r = await openai.responses.create({ model, input: question, temperature: 0 });
  assert.equal(r.output_text, answer);
  assert.equal(r.status, 'completed');
});

test('openai: responses as a stream', async () => {
  const stream = openai.responses.stream({ model, input: question, temperature: 0 });
  const types = new Set();
  for await (const event of stream) types.add(event.type);
  assert.equal((await stream.finalResponse()).output_text, answer);
  for (const type of ['response.created', 'response.output_text.delta', 'response.completed']) assert.ok(types.has(type), type);
});

test('openai: completions, models, errors', async () => {
  const r = await openai.completions.create({ model, prompt: 'The capital', temperature: 0, max_tokens: 4, logprobs: 1 });
  assert.equal(r.choices[0].logprobs.tokens.join(''), r.choices[0].text);
  assert.ok((await openai.models.list()).data.some((m) => m.id === model));
  await assert.rejects(openai.chat.completions.create({ model: 'other', messages }), OpenAI.NotFoundError);
  await assert.rejects(openai.chat.completions.create({ model, messages, frobnicate: 1 }),
    (e) => e instanceof OpenAI.BadRequestError && e.param === 'frobnicate');
});

test('anthropic: messages', async () => {
  const r = await anthropic.messages.create({ model, max_tokens: 50, messages, temperature: 0 });
  assert.equal(r.content[0].text, answer);
  assert.equal(r.stop_reason, 'end_turn');
});

test('anthropic: a stream', async () => {
  const stream = anthropic.messages.stream({ model, max_tokens: 50, messages, temperature: 0 });
  assert.equal(await stream.finalText(), answer);
  assert.ok((await stream.finalMessage()).usage.output_tokens > 0);
});

test('anthropic: counts and errors', async () => {
  assert.ok((await anthropic.messages.countTokens({ model, messages })).input_tokens > 10);
  await assert.rejects(anthropic.messages.create({ model: 'other', max_tokens: 5, messages }), Anthropic.NotFoundError);
});

test('ai-sdk: text and stream', async () => {
  const provider = createOpenAICompatible({ name: 'etc', baseURL: url + '/v1' });
  const r = await generateText({ model: provider(model), prompt: question, temperature: 0 });
  assert.equal(r.text, answer);
  let text = '';
  for await (const part of streamText({ model: provider(model), prompt: question, temperature: 0 }).textStream) text += part;
  assert.equal(text, answer);
});

test('langchain', async () => {
  const chat = new ChatOpenAI({ model, temperature: 0, apiKey: 'none', configuration: { baseURL: url + '/v1' } });
  assert.equal((await chat.invoke(question)).content, answer);
  let text = '';
  for await (const chunk of await chat.stream(question)) text += chunk.content;
  assert.equal(text, answer);
});

test('instructor', async () => {
  const city = z.object({ city: z.enum(['Paris', 'Rome']), n: z.number().int().min(0).max(9) });
  const client = Instructor({ client: openai, mode: 'JSON_SCHEMA', logger: () => {} });
  const { _meta, ...r } = await client.chat.completions.create({ model, messages, temperature: 1, seed: 3, max_retries: 0,
    response_model: { schema: city, name: 'City' } });
  assert.deepEqual(city.parse(r), r);
  assert.ok(_meta.usage.completion_tokens > 0);
});

// Calls of tools by clients that others wrote, against the server of TestToolClients (runtime/serve/suites_test.go) at ETC_URL.
// Its model is scripted: asked for the weather it calls "weather" for Bern, asked for both also for Rome, and with a result of
// the tool it answers "It rains." Where it thinks, it thinks "Where?".
import assert from 'node:assert/strict';
import test from 'node:test';
import OpenAI from 'openai';
import Anthropic from '@anthropic-ai/sdk';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, stepCountIs, streamText, tool as aiTool } from 'ai';
import { ChatOpenAI } from '@langchain/openai';
import Instructor from '@instructor-ai/instructor';
import { z } from 'zod';

const url = process.env.ETC_URL;
const model = 'qwen';
const openai = new OpenAI({ baseURL: url + '/v1', apiKey: 'none', maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: 'none', maxRetries: 0 });
const parameters = { type: 'object', properties: { city: { type: 'string' }, days: { type: 'integer' } }, required: ['city'] };
const tools = [{ type: 'function', function: { name: 'weather', description: 'the weather', parameters } }];
const weather = [{ role: 'user', content: 'The weather?' }];
const both = [{ role: 'user', content: 'The weather of both?' }];
const bern = { city: 'Bern', days: 2 }, rome = { city: 'Rome', days: 2 };
const argumentsOf = (calls) => calls.map((c) => JSON.parse(c.function.arguments));

test('openai: a call and its result', async () => {
  const r = await openai.chat.completions.create({ model, messages: weather, tools });
  const message = r.choices[0].message;
  assert.equal(r.choices[0].finish_reason, 'tool_calls');
  assert.equal(message.content, 'I ask.');
  assert.deepEqual(argumentsOf(message.tool_calls), [bern]);
  const result = { role: 'tool', tool_call_id: message.tool_calls[0].id, content: 'rain' };
  const next = await openai.chat.completions.create({ model, messages: [...weather, message, result], tools });
  assert.equal(next.choices[0].message.content, 'It rains.');
  assert.equal(next.choices[0].finish_reason, 'stop');
});

test('openai: calls at once, as a stream', async () => {
  const stream = openai.chat.completions.stream({ model, messages: both, tools });
  let deltas = 0;
  stream.on('tool_calls.function.arguments.delta', () => deltas++);
  const r = await stream.finalChatCompletion();
  assert.deepEqual(argumentsOf(r.choices[0].message.tool_calls), [bern, rome]);
  assert.ok(deltas > 4, `${deltas} deltas of arguments`);
  const one = await openai.chat.completions.create({ model, messages: both, tools, parallel_tool_calls: false });
  assert.deepEqual(argumentsOf(one.choices[0].message.tool_calls), [bern]);
});

test('openai: tool_choice', async () => {
  const messages = [{ role: 'user', content: 'Hello' }];
  const cities = { ...parameters, properties: { city: { enum: ['Bern', 'Rome'] } } }; // the model would write texts without end
  const tools = [{ type: 'function', function: { name: 'weather', parameters: cities } }];
  const ask = async (tool_choice) => (await openai.chat.completions.create(
    { model, messages, tools, tool_choice, parallel_tool_calls: false, max_tokens: 200 })).choices[0].message;
  for (const choice of ['auto', 'none']) assert.equal((await ask(choice)).tool_calls, undefined, choice);
  for (const choice of ['required', { type: 'function', function: { name: 'weather' } }]) {
    const m = await ask(choice);
    assert.equal(m.tool_calls.length, 1);
    assert.equal(m.tool_calls[0].function.name, 'weather');
    assert.ok(['Bern', 'Rome'].includes(argumentsOf(m.tool_calls)[0].city));
  }
  await assert.rejects(ask({ type: 'function', function: { name: 'none' } }), (e) => e.param === 'tool_choice');
});

test('openai: runTools', async () => {
  let given;
  const runner = openai.chat.completions.runTools({ model, messages: weather, tools: [{ type: 'function', function: {
    name: 'weather', description: 'the weather', parameters, parse: JSON.parse, function: (x) => { given = x; return 'rain'; } } }] });
  assert.equal(await runner.finalContent(), 'It rains.');
  assert.deepEqual(given, bern);
});

test('openai: responses', async () => {
  const flat = [{ type: 'function', name: 'weather', description: 'the weather', parameters, strict: false }];
  const r = await openai.responses.create({ model, input: weather, tools: flat });
  const call = r.output.find((x) => x.type === 'function_call');
  assert.deepEqual(JSON.parse(call.arguments), bern);
  const next = await openai.responses.create({ model, tools: flat,
    input: [...weather, ...r.output, { type: 'function_call_output', call_id: call.call_id, output: 'rain' }] });
  assert.equal(next.output_text, 'It rains.');
  const stream = openai.responses.stream({ model, input: both, tools: flat });
  let text = '';
  for await (const e of stream) if (e.type === 'response.function_call_arguments.delta') text += e.delta;
  assert.equal(text, JSON.stringify(bern).replaceAll(':', ': ').replaceAll(',', ', ') +
    JSON.stringify(rome).replaceAll(':', ': ').replaceAll(',', ', '));
  assert.equal((await stream.finalResponse()).output.filter((x) => x.type === 'function_call').length, 2);
});

test('openai: thoughts', async () => {
  const r = await openai.chat.completions.create({ model, messages: weather, tools, chat_template_kwargs: { enable_thinking: true } });
  assert.equal(r.choices[0].message.reasoning_content, 'Where?');
  assert.deepEqual(argumentsOf(r.choices[0].message.tool_calls), [bern]);
  assert.ok(r.usage.completion_tokens_details.reasoning_tokens > 0);
});

test('anthropic: a call and its result', async () => {
  const offered = [{ name: 'weather', description: 'the weather', input_schema: parameters }];
  const r = await anthropic.messages.create({ model, max_tokens: 200, messages: weather, tools: offered });
  assert.equal(r.stop_reason, 'tool_use');
  const use = r.content.find((b) => b.type === 'tool_use');
  assert.deepEqual(use.input, bern);
  const next = await anthropic.messages.create({ model, max_tokens: 200, tools: offered, messages: [...weather,
    { role: 'assistant', content: r.content },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: use.id, content: 'rain' }] }] });
  assert.equal(next.content[0].text, 'It rains.');
  const m = await anthropic.messages.stream({ model, max_tokens: 200, messages: both, tools: offered }).finalMessage();
  assert.deepEqual(m.content.filter((b) => b.type === 'tool_use').map((b) => b.input), [bern, rome]);
  const named = await anthropic.messages.create({ model, max_tokens: 200, messages: [{ role: 'user', content: 'Hello' }],
    tools: offered, tool_choice: { type: 'tool', name: 'weather' } });
  assert.equal(named.content.at(-1).name, 'weather');
});

test('anthropic: thoughts', async () => {
  const stream = anthropic.messages.stream({ model, max_tokens: 200, messages: [{ role: 'user', content: 'Hello' }],
    thinking: { type: 'enabled', budget_tokens: 100 } });
  let thought = '';
  stream.on('thinking', (delta) => { thought += delta; });
  const m = await stream.finalMessage();
  assert.equal(thought.trim(), 'Where?');
  assert.equal(m.content.at(-1).text, 'Good day.');
});

test('ai-sdk', async () => {
  const provider = createOpenAICompatible({ name: 'etc', baseURL: url + '/v1' });
  const offered = { weather: aiTool({ description: 'the weather', inputSchema: z.object({ city: z.string(), days: z.number().optional() }),
    execute: async ({ city }) => `rain in ${city}` }) };
  const r = await generateText({ model: provider(model), prompt: 'The weather?', tools: offered, stopWhen: stepCountIs(3) });
  assert.equal(r.text, 'It rains.');
  assert.equal(r.steps.length, 2);
  assert.deepEqual(r.steps[0].toolCalls[0].input, bern);
  let text = '', calls = 0;
  const s = streamText({ model: provider(model), prompt: 'The weather of both?', tools: offered, stopWhen: stepCountIs(3) });
  for await (const part of s.fullStream) {
    if (part.type === 'tool-call') calls++;
    if (part.type === 'error') throw part.error;
  }
  text = await s.text;
  assert.equal(calls, 2);
  assert.equal(text, 'It rains.');
});

test('langchain', async () => {
  const chat = new ChatOpenAI({ model, apiKey: 'none', configuration: { baseURL: url + '/v1' } }).bindTools(tools);
  const m = await chat.invoke('The weather of both?');
  assert.deepEqual(m.tool_calls.map((c) => c.args), [bern, rome]);
  let all;
  for await (const chunk of await chat.stream('The weather?')) all = all === undefined ? chunk : all.concat(chunk);
  assert.deepEqual(all.tool_calls.map((c) => c.args), [bern]);
});

test('instructor', async () => {
  const client = Instructor({ client: openai, mode: 'TOOLS', logger: () => {} });
  const { _meta, ...r } = await client.chat.completions.create({ model, messages: [{ role: 'user', content: 'Hello' }], max_retries: 0,
    max_tokens: 200, response_model: { schema: z.object({ city: z.enum(['Bern', 'Rome']) }), name: 'City' } });
  assert.ok(['Bern', 'Rome'].includes(r.city));
  assert.ok(_meta.usage.completion_tokens > 0);
});

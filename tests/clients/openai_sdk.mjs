// One run of OpenAI's SDK for JavaScript, told by its arguments: URL CASE. Prints what came of it as JSON.
import OpenAI from 'openai';
import { ResponsesToolRunner } from 'openai/helpers/responses-tool-runner';
import { zodFunction, zodResponseFormat, zodResponsesFunction, zodTextFormat } from 'openai/helpers/zod';
import { ChatCompletionStream } from 'openai/lib/ChatCompletionStream';
import { z } from 'zod';

const [url, name] = process.argv.slice(2);
const openai = new OpenAI({ baseURL: url, apiKey: 'none', maxRetries: 0 });
const model = 'demo';
const person = z.object({ name: z.string(), age: z.number().int() });
const city = z.object({ city: z.string() });
const weather = zodResponsesFunction({ name: 'get_weather', description: 'Get the weather of a city', parameters: city });
const said = ({ city }) => `18 degrees in ${city}`;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const counted = (kinds, kind) => ({ ...kinds, [kind]: (kinds[kind] ?? 0) + 1 });

async function all(pages) {
  const found = [];
  for await (const each of pages) found.push(each);
  return found;
}

async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    const { status, code, param, type, requestID, message } = error;
    return { kind: error.constructor.name, status, code, param, type, hasRequestId: Boolean(requestID), message };
  }
}

const cases = {
  async roundTrip() {
    const asked = [{ role: 'user', content: 'weather in Paris' }];
    const first = await openai.responses.create({ model, input: asked, tools: [weather] });
    const call = first.output.at(-1);
    const output = { type: 'function_call_output', call_id: call.call_id, output: said(JSON.parse(call.arguments)) };
    const byId = await openai.responses.create({ model, previous_response_id: first.id, input: [output], tools: [weather] });
    const byItems = await openai.responses.create({ model, input: [...asked, ...first.output, output], tools: [weather], store: false });
    return { texts: [byId.output_text, byItems.output_text], requestId: first._request_id };
  },
  async stream() {
    const stream = openai.responses.stream({ model, input: 'weather in Paris', tools: [weather] });
    let kinds = {};
    let deltas = '';
    stream.on('response.function_call_arguments.delta', (event) => (deltas += event.delta));
    for await (const event of stream) kinds = counted(kinds, event.type);
    const final = await stream.finalResponse();
    const stored = await openai.responses.retrieve(final.id);
    const plain = [];
    for await (const event of await openai.responses.create({ model, input: 'think first', stream: true })) plain.push(event);
    return {
      kinds, deltas, parsed: final.output.at(-1).parsed_arguments, types: final.output.map((item) => item.type),
      sameIds: final.output.every((item, index) => item.id === stored.output[index].id),
      inOrder: plain.every((event, index) => event.sequence_number === index),
      text: plain.at(-1).response.output[1].content[0].text,
    };
  },
  async parse() {
    const text = { format: zodTextFormat(person, 'person') };
    const done = await openai.responses.parse({ model, input: 'a person please', text });
    const streamed = await openai.responses.stream({ model, input: 'a person please', text }).finalResponse();
    const chat = await openai.chat.completions.parse({
      model, messages: [{ role: 'user', content: 'a person please' }], response_format: zodResponseFormat(person, 'person'),
    });
    return [done.output_parsed, streamed.output_parsed, chat.choices[0].message.parsed];
  },
  async responsesRunner() {
    const functions = [{ tool: { type: 'function', name: 'get_weather', parameters: weather.parameters, strict: true }, execute: said }];
    const texts = [];
    for (const options of [{}, { stream: true }, { stream: true, eager: true }]) {
      const runner = new ResponsesToolRunner({ functions });
      const final = await runner.run(openai, { model, input: [{ role: 'user', content: 'two cities' }] }, options);
      texts.push(final.output_text ?? final.response?.output_text);
    }
    return { texts };
  },
  async chatRunner() {
    const tools = [zodFunction({ name: 'get_weather', parameters: city, function: said, description: 'Get the weather of a city' })];
    const asked = { model, messages: [{ role: 'user', content: 'two cities' }], tools };
    const plain = openai.chat.completions.runTools(asked);
    const streamed = openai.chat.completions.runTools({ ...asked, stream: true });
    const results = [];
    streamed.on('functionToolCallResult', (result) => results.push(result));
    const texts = [await plain.finalContent(), await streamed.finalContent()];
    return { texts, results, roles: streamed.messages.map((message) => message.role), usage: (await plain.totalUsage()).total_tokens };
  },
  async chatStream() {
    const stream = openai.chat.completions.stream({
      model, messages: [{ role: 'user', content: 'two cities' }], stream_options: { include_usage: true },
      tools: [zodFunction({ name: 'get_weather', parameters: city })],
    });
    let calls = [];
    let text = '';
    stream.on('content', (delta) => (text += delta));
    stream.on('tool_calls.function.arguments.done', (call) => calls.push(call.parsed_arguments));
    const final = await stream.finalChatCompletion();
    const relayed = ChatCompletionStream.fromReadableStream(
      openai.chat.completions.stream({ model, messages: [{ role: 'user', content: 'and once more' }] }).toReadableStream(),
    );
    return { text, calls, finish: final.choices[0].finish_reason, usage: final.usage.total_tokens, relayed: await relayed.finalContent() };
  },
  async resumed() {
    const started = await openai.responses.create({ model, input: 'take a while', background: true, stream: true });
    let id;
    for await (const event of started) {
      id = event.response.id;
      break;
    }
    const rest = await all(await openai.responses.retrieve(id, { stream: true, starting_after: 0 }));
    const stream = openai.responses.stream({ response_id: id, starting_after: 2 });
    const numbers = (await all(stream)).map((event) => event.sequence_number);
    const final = await stream.finalResponse();
    return { first: rest[0].sequence_number, last: rest.at(-1).type, numbers: numbers.slice(0, 2), text: final.output_text };
  },
  async background() {
    let response = await openai.responses.create({ model, input: 'and once more', background: true });
    for (let n = 0; n < 200 && ['queued', 'in_progress'].includes(response.status); n++) {
      await sleep(20);
      response = await openai.responses.retrieve(response.id);
    }
    const slow = await openai.responses.create({ model, input: 'go slowly', background: true });
    const cancelled = await openai.responses.cancel(slow.id);
    await openai.responses.delete(response.id);
    const gone = await failure(openai.responses.retrieve(response.id));
    return { text: response.output_text, cancelled: cancelled.status, gone: gone.status };
  },
  async inputItems() {
    const input = ['one', 'two', 'three', 'and once more'].map((content) => ({ role: 'user', content }));
    const { id } = await openai.responses.create({ model, input });
    const text = (item) => item.content[0].text;
    const up = await all(openai.responses.inputItems.list(id, { limit: 1, order: 'asc' }));
    const down = await all(openai.responses.inputItems.list(id, { limit: 3 }));
    return { up: up.map(text), down: down.map(text), tokens: (await openai.responses.inputTokens.count({ model, input })).input_tokens };
  },
  async conversations() {
    const { id } = await openai.conversations.create({ metadata: { a: '1' }, items: [{ role: 'user', content: 'weather in Paris' }] });
    await openai.responses.create({ model, conversation: id, input: 'and once more' });
    const [added] = (await openai.conversations.items.create(id, { items: [{ role: 'user', content: 'last' }] })).data;
    const items = await all(openai.conversations.items.list(id, { limit: 1, order: 'asc' }));
    const one = await openai.conversations.items.retrieve(added.id, { conversation_id: id });
    await openai.conversations.items.delete(added.id, { conversation_id: id });
    const updated = await openai.conversations.update(id, { metadata: { b: '2' } });
    const deleted = await openai.conversations.delete(id);
    const gone = await failure(openai.conversations.retrieve(id));
    return { roles: items.map((item) => item.role), same: one.id === added.id, metadata: updated.metadata, deleted: deleted.deleted, gone: gone.status };
  },
  async storedChat() {
    const messages = [{ role: 'user', content: 'and once more' }];
    const made = await openai.chat.completions.create({ model, messages, store: true, metadata: { run: name } });
    const listed = await all(openai.chat.completions.list({ metadata: { run: name }, limit: 1 }));
    const updated = await openai.chat.completions.update(made.id, { metadata: { run: 'again' } });
    const kept = await all(openai.chat.completions.messages.list(made.id));
    const deleted = await openai.chat.completions.delete(made.id);
    return {
      listed: listed.some((each) => each.id === made.id), metadata: updated.metadata, kept: kept.map((each) => each.content), deleted: deleted.deleted,
    };
  },
  async completions() {
    const plain = await openai.completions.create({ model, prompt: 'and once more', max_tokens: 20 });
    let text = '';
    for await (const chunk of await openai.completions.create({ model, prompt: 'and once more', stream: true })) text += chunk.choices[0].text;
    const listed = (await all(openai.models.list())).map((each) => each.id);
    return { same: plain.choices[0].text === text, text, listed, one: (await openai.models.retrieve('gpt-4o')).id };
  },
  async embeddings() {
    const asBytes = await openai.embeddings.create({ model, input: ['one', 'two'] });
    const asNumbers = await openai.embeddings.create({ model, input: ['one', 'two'], encoding_format: 'float' });
    const apart = asBytes.data.map((each, n) => Math.max(...each.embedding.map((x, i) => Math.abs(x - asNumbers.data[n].embedding[i]))));
    return { count: asBytes.data.length, size: asBytes.data[0].embedding.length, apart: Math.max(...apart) };
  },
  async failures() {
    const input = 'x';
    const broken = async () => {
      for await (const _ of await openai.chat.completions.create({ model, messages: [{ role: 'user', content: 'break down' }], stream: true }));
    };
    return {
      model: await failure(openai.responses.create({ model: 'nobody', input })),
      value: await failure(openai.responses.create({ model, input, temperature: 9 })),
      busy: await failure(openai.responses.create({ model, input: 'be busy' })),
      engine: await failure(openai.chat.completions.create({ model, messages: [{ role: 'user', content: 'break down' }] })),
      broken: await failure(broken()),
      stream: (await openai.responses.stream({ model, input: 'break down' }).finalResponse()).status,
      cut: await failure(openai.chat.completions.parse({
        model, messages: [{ role: 'user', content: 'too long an answer' }], response_format: zodResponseFormat(person, 'person'),
      })),
    };
  },
  async socket() {
    const { ResponsesWS } = await import('openai/resources/responses/ws');
    const socket = new ResponsesWS(openai);
    const next = { model, input: 'and once more' };
    const texts = [];
    await new Promise((resolve, reject) => {
      socket.on('error', reject);
      socket.on('response.completed', ({ response }) => {
        texts.push(response.output.at(-1).content[0].text);
        if (texts.length === 2) resolve();
        else socket.send({ type: 'response.create', previous_response_id: response.id, ...next });
      });
      socket.send({ type: 'response.create', model, input: 'think first' });
    });
    socket.close();
    return { texts };
  },
  async aborted() {
    const seen = [];
    for (const begin of [
      (signal) => openai.responses.create({ model, input: 'go slowly', stream: true }, { signal }),
      (signal) => openai.chat.completions.create({ model, messages: [{ role: 'user', content: 'go slowly' }], stream: true }, { signal }),
    ]) {
      const control = new AbortController();
      let count = 0;
      for await (const _ of await begin(control.signal)) if (++count === 8) control.abort();
      seen.push(count);
    }
    const control = new AbortController();
    setTimeout(() => control.abort(), 150);
    const plain = await failure(openai.responses.create({ model, input: 'go slowly' }, { signal: control.signal }));
    return { seen, plain: plain.kind };
  },
};

console.log(JSON.stringify(await cases[name]()));

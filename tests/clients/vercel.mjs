// One run of the Vercel AI SDK, told by its arguments: URL API CASE, and a prompt for one of them. Prints what came of it as JSON.
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateObject, generateText, Output, stepCountIs, streamObject, streamText, tool } from 'ai';
import { z } from 'zod';

const [url, api, name, prompt] = process.argv.slice(2);
const openai = createOpenAI({ baseURL: url, apiKey: 'none' });
const apis = {
  responses: openai.responses,
  chat: openai.chat,
  compatible: createOpenAICompatible({ name: 'litegate', baseURL: url, includeUsage: true, supportsStructuredOutputs: true }),
  messages: createAnthropic({ baseURL: url, apiKey: 'none' }),
};
const named = (id) => apis[api](id);
const model = named('demo');
const getWeather = tool({
  description: 'Get the weather of a city',
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `18 degrees in ${city}`,
});
const loop = { tools: { get_weather: getWeather }, stopWhen: stepCountIs(4), maxRetries: 0 };
const person = z.object({ name: z.string(), age: z.number().int() });

async function streamed(options) {
  const errors = [];
  const result = streamText({ ...options, onError: ({ error }) => errors.push(error instanceof Error ? error.message : JSON.stringify(error)) });
  const kinds = {};
  for await (const part of result.fullStream) kinds[part.type] = (kinds[part.type] ?? 0) + 1;
  return { result, kinds, errors };
}

// Plain, streamed, and with what came of it sent back: by reference, and as it stands.
async function repeated(options, prompt) {
  const asked = { role: 'user', content: prompt };
  const plain = await generateText({ model, ...options, messages: [asked] });
  const { result, errors } = await streamed({ model, ...options, messages: [asked] });
  const messages = [asked, ...plain.responseMessages, { role: 'user', content: 'and once more' }];
  const texts = [plain.text, await result.text];
  for (const store of [true, false]) texts.push((await generateText({ model, ...options, messages, providerOptions: { openai: { store } } })).text);
  return { texts, errors };
}

const cases = {
  async generate() {
    const done = await generateText({ model, ...loop, prompt: 'weather in Paris' });
    const { inputTokens, outputTokens } = done.totalUsage;
    return { text: done.text, steps: done.steps.length, inputTokens, outputTokens, warnings: done.warnings };
  },
  async stream() {
    const { result, kinds, errors } = await streamed({ model, ...loop, prompt: 'two cities' });
    const { outputTokens } = await result.totalUsage;
    return { text: await result.text, kinds, errors, outputTokens, finish: await result.finishReason };
  },
  async think() {
    const { result, kinds, errors } = await streamed({ model, maxRetries: 0, prompt: 'think first' });
    const plain = await generateText({ model, maxRetries: 0, prompt: 'think first' });
    return { text: await result.text, thoughts: [await result.reasoningText, plain.reasoningText], kinds, errors };
  },
  async summary() {
    const providerOptions = { openai: { forceReasoning: true, reasoningSummary: 'auto' } };
    const asked = { model, maxRetries: 0, prompt: 'think first', providerOptions };
    const done = await generateText(asked);
    const { result, kinds, errors } = await streamed(asked);
    return { thought: done.reasoningText, streamed: await result.reasoningText, kinds, errors };
  },
  async summaries() {
    const openaiOptions = { forceReasoning: true, reasoningSummary: 'auto' };
    const texts = [];
    for (const store of [true, false]) {
      const providerOptions = { openai: { ...openaiOptions, store } };
      const done = await generateText({ model, ...loop, prompt: 'weather in Paris', providerOptions });
      texts.push(done.text);
    }
    return { texts };
  },
  async history() {
    const first = await generateText({ model, ...loop, prompt: 'weather in Paris' });
    const messages = [
      { role: 'system', content: 'Be nice.' },
      { role: 'user', content: 'weather in Paris' },
      ...first.responseMessages,
      { role: 'user', content: 'and once more' },
    ];
    const second = await generateText({ model, ...loop, messages, allowSystemInMessages: true });
    return { text: second.text };
  },
  async stateless() {
    const providerOptions = { openai: { store: false, include: ['reasoning.encrypted_content'] } };
    const done = await generateText({ model, ...loop, prompt: 'weather in Paris', providerOptions });
    return { text: done.text, steps: done.steps.length };
  },
  async previous() {
    const first = await generateText({ model, ...loop, prompt: 'weather in Paris' });
    const previousResponseId = first.providerMetadata.openai.responseId;
    const second = await generateText({
      model, ...loop, prompt: 'and once more', providerOptions: { openai: { previousResponseId } },
    });
    return { text: second.text };
  },
  async object() {
    const done = await generateObject({ model, schema: person, prompt: 'a person please', maxRetries: 0 });
    return { object: done.object };
  },
  async streamedObject() {
    const done = streamObject({ model, schema: person, prompt: 'a person please', maxRetries: 0 });
    let parts = 0;
    for await (const _ of done.partialObjectStream) parts += 1;
    return { object: await done.object, parts };
  },
  async output() {
    const done = await generateText({ model, ...loop, output: Output.object({ schema: person }), prompt: 'a person please' });
    return { object: done.output };
  },
  async forced() {
    const done = await generateText({
      model, ...loop, prompt: 'say anything', toolChoice: 'required', stopWhen: stepCountIs(1),
    });
    const one = await generateText({
      model, ...loop, prompt: 'say anything', toolChoice: { type: 'tool', toolName: 'get_weather' }, stopWhen: stepCountIs(1),
    });
    return { calls: [...done.toolCalls, ...one.toolCalls].map((call) => call.toolName) };
  },
  async known() {
    const done = await generateText({
      model: named('gpt-5'), ...loop, prompt: 'think first', maxOutputTokens: 90,
      providerOptions: {
        openai: {
          reasoningEffort: 'low', reasoningSummary: 'auto', textVerbosity: 'low', user: 'somebody', serviceTier: 'auto',
          parallelToolCalls: true, metadata: { run: '1' }, promptCacheKey: 'k', safetyIdentifier: 's', strictJsonSchema: true,
        },
      },
    });
    return { text: done.text };
  },
  async settings() {
    const done = await generateText({
      model, prompt: 'think first', temperature: 0.4, topP: 0.9, seed: 1, maxOutputTokens: 90, maxRetries: 0,
      presencePenalty: 0, frequencyPenalty: 0, headers: { 'x-mine': '1' },
    });
    return { text: done.text };
  },
  async abort() {
    const control = new AbortController();
    const { textStream } = streamText({ model, prompt: 'go slowly', abortSignal: control.signal, onError: () => {} });
    let seen = 0;
    for await (const _ of textStream) if (++seen === 3) control.abort();
    return { seen };
  },
  async broken() {
    const { errors, kinds } = await streamed({ model, prompt: 'break down', maxRetries: 0 });
    return { errors, kinds };
  },
  async clientTools() {
    const done = 'made-by-42';
    const exited = { type: 'exit', exitCode: 0 };
    const t = openai.tools;
    const asked = {
      'patch the file': { apply_patch: t.applyPatch({ execute: ({ operation }) => ({ status: 'completed', output: `${done} ${operation.path}` }) }) },
      'open a shell': {
        shell: t.shell({ execute: ({ action }) => ({ output: action.commands.map(() => ({ stdout: done, stderr: '', outcome: exited })) }) }),
      },
      'open a local shell': { local_shell: t.localShell({ execute: ({ action }) => ({ output: `${done} ${action.command}` }) }) },
      'write some SQL': { write_sql: t.customTool({ name: 'write_sql', description: 'Ask the database', execute: (sql) => `${done} ${sql}` }) },
    };
    const said = {};
    for (const [prompt, tools] of Object.entries(asked)) said[prompt] = await repeated({ ...loop, tools }, prompt);
    return said;
  },
  async hosted() {
    const tools = { web_search: openai.tools.webSearch({}), code_interpreter: openai.tools.codeInterpreter({}) };
    return repeated({ ...loop, tools }, prompt);
  },
  async mcp() {
    const mcp = openai.tools.mcp({ serverLabel: 'example', connectorId: 'example', requireApproval: 'never' });
    return repeated({ ...loop, tools: { mcp } }, 'please add');
  },
  async approval() {
    const mcp = openai.tools.mcp({ serverLabel: 'example', connectorId: 'example', requireApproval: 'always' });
    const options = { model, ...loop, tools: { mcp } };
    const said = [];
    for (const approved of [true, false]) {
      const messages = [{ role: 'user', content: 'please add' }];
      const first = await generateText({ ...options, messages });
      const { approvalId } = first.content.find((part) => part.type === 'tool-approval-request');
      messages.push(...first.responseMessages, { role: 'tool', content: [{ type: 'tool-approval-response', approvalId, approved, providerExecuted: true }] });
      said.push((await generateText({ ...options, messages })).text);
    }
    return { said };
  },
  async refused() {
    try {
      await generateText({ model: named('nobody'), prompt: 'x', maxRetries: 0 });
    } catch (error) {
      return { status: error.statusCode, message: error.message, retryable: error.isRetryable };
    }
  },
};

console.log(JSON.stringify(await cases[name]()));

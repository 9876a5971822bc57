// openai-agents for JavaScript, told by its arguments: URL API. Prints what came of each case as JSON.
import {
  Agent, applyPatchTool, hostedMcpTool, OpenAIChatCompletionsModel, OpenAIConversationsSession, OpenAIResponsesModel, run,
  setTracingDisabled, shellTool, tool,
} from '@openai/agents';
import OpenAI from 'openai';
import { z } from 'zod';

const [url, api] = process.argv.slice(2);
setTracingDisabled(true);
const client = new OpenAI({ baseURL: url, apiKey: 'none', maxRetries: 0 });
const model = new (api === 'chat' ? OpenAIChatCompletionsModel : OpenAIResponsesModel)(client, 'demo');
const getWeather = tool({
  name: 'get_weather', description: 'Get the weather of a city', parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => `18 degrees in ${city}`,
});
const agent = (...tools) => new Agent({ name: 'A', model, tools });
const said = async (...asked) => (await run(...asked)).finalOutput;
const example = (requireApproval) => agent(hostedMcpTool({ serverLabel: 'example', connectorId: 'example', requireApproval }));

const cases = {
  tools: () => said(agent(getWeather), 'two cities'),
  async streamed() {
    const result = await run(agent(getWeather), 'weather in Paris', { stream: true });
    let text = '';
    for await (const event of result) if (event.type === 'raw_model_stream_event') text += event.data.delta ?? '';
    await result.completed;
    return [text, result.finalOutput];
  },
  output: () => said(new Agent({ name: 'A', model, outputType: z.object({ name: z.string(), age: z.number() }) }), 'a person please'),
  async handoff() {
    const spanish = new Agent({ name: 'spanish', model });
    return (await run(new Agent({ name: 'A', model, handoffs: [spanish] }), 'somebody in Spanish')).lastAgent.name;
  },
  async history() {
    const first = await run(agent(getWeather), 'weather in Paris');
    return said(agent(getWeather), [...first.history, { role: 'user', content: 'and once more' }]);
  },
};
const ofResponses = {
  async previous() {
    const { lastResponseId } = await run(agent(getWeather), 'weather in Paris');
    return said(agent(getWeather), 'and once more', { previousResponseId: lastResponseId });
  },
  async session() {
    const session = new OpenAIConversationsSession({ client });
    await run(agent(getWeather), 'weather in Paris', { session });
    return said(agent(getWeather), 'and once more', { session });
  },
  mcp: () => said(example('never'), 'please add'),
  async approval() {
    const asking = example('always');
    const texts = [];
    for (const decide of ['approve', 'reject']) {
      const stopped = await run(asking, 'please add');
      for (const each of stopped.interruptions) stopped.state[decide](each);
      texts.push(await said(asking, stopped.state));
    }
    return texts;
  },
  shell: () => said(agent(shellTool({
    shell: { run: async () => ({ output: [{ stdout: 'made-by-42', stderr: '', outcome: { type: 'exit', exitCode: 0 } }] }) },
  })), 'open a shell'),
  patch() {
    const edit = async () => ({ status: 'completed', output: 'made-by-42' });
    return said(agent(applyPatchTool({ editor: { createFile: edit, updateFile: edit, deleteFile: edit } })), 'patch the file');
  },
};

const found = {};
for (const [name, begin] of Object.entries(api === 'chat' ? cases : { ...cases, ...ofResponses })) found[name] = await begin();
console.log(JSON.stringify(found));

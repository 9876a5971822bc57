// LangChain for JavaScript, told by its arguments: URL API. Prints what came of each case as JSON.
import { HumanMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { z } from 'zod';

const [url, api] = process.argv.slice(2);
const known = { model: 'demo', apiKey: 'none', configuration: { baseURL: url }, maxRetries: 0 };
const options = { chat: {}, responses: { useResponsesApi: true }, stateless: { useResponsesApi: true, zdrEnabled: true } };
const chat = new ChatOpenAI({ ...known, streamUsage: true, ...options[api] });
const getWeather = tool(async ({ city }) => `18 degrees in ${city}`, {
  name: 'get_weather', description: 'Get the weather of a city', schema: z.object({ city: z.string() }),
});
const person = z.object({ name: z.string(), age: z.number() });

async function whole(stream) {
  let message;
  for await (const chunk of await stream) message = message ? message.concat(chunk) : chunk;
  return message;
}

async function answered(prompt, ask) {
  const messages = [new HumanMessage(prompt)];
  for (;;) {
    const message = await ask(messages);
    messages.push(message);
    if (!message.tool_calls?.length) return message.text;
    for (const call of message.tool_calls) messages.push(await getWeather.invoke(call));
  }
}

const bound = chat.bindTools([getWeather]);
const streamed = await whole(chat.stream('think first'));
let failure;
try {
  await chat.invoke('be busy');
} catch (error) {
  failure = error.status;
}
console.log(JSON.stringify({
  texts: [(await chat.invoke('think first')).text, streamed.text],
  usage: streamed.usage_metadata.output_token_details.reasoning,
  plainTools: await answered('two cities', (messages) => bound.invoke(messages)),
  streamedTools: await answered('weather in Paris', (messages) => whole(bound.stream(messages))),
  object: await chat.withStructuredOutput(person, { method: 'jsonSchema' }).invoke('a person please'),
  called: await chat.withStructuredOutput(person, { method: 'functionCalling', name: 'Person' }).invoke('call Person'),
  vectors: (await new OpenAIEmbeddings(known).embedDocuments(['a', 'b'])).length,
  failure,
}));

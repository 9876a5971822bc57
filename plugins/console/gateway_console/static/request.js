// The body of a request, from the settings and the items of a conversation.

export const DEFAULTS = {
  model: "",
  instructions: "",
  temperature: "",
  top_p: "",
  max_output_tokens: "",
  effort: "",
  functions: "",
  serverTools: [],
  vectorStores: "",
  mcp: [],
  tool_choice: "",
  format: "text",
  schema: "",
  background: false,
  store: true,
  extra: "",
};

/** A mistake in the settings, found before anything is sent. */
export class SettingsError extends Error {}

const number = (text, name) => {
  const value = Number(text);
  if (Number.isNaN(value)) throw new SettingsError(`${name} has to be a number.`);
  return value;
};

function json(text, name) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new SettingsError(`${name} is not valid JSON: ${error.message}`);
  }
}

export function toolsOf(settings, secrets = {}) {
  const tools = [];
  if (settings.functions.trim()) {
    const listed = json(settings.functions, "Functions");
    for (const tool of Array.isArray(listed) ? listed : [listed]) {
      // Chat Completions nests a function's definition; both forms are taken.
      tools.push(tool.function ? { type: "function", ...tool.function } : { type: "function", ...tool });
    }
  }
  for (const type of settings.serverTools) {
    if (type === "code_interpreter") tools.push({ type, container: { type: "auto" } });
    else if (type === "shell") tools.push({ type, environment: { type: "container_auto" } });
    else if (type === "file_search") tools.push({ type, vector_store_ids: settings.vectorStores.split(/[\s,]+/).filter(Boolean) });
    else tools.push({ type });
  }
  for (const server of settings.mcp) {
    if (!server.label) throw new SettingsError("An MCP server needs a label.");
    const tool = { type: "mcp", server_label: server.label };
    if (server.url) tool.server_url = server.url;
    const secret = secrets[server.label];
    if (secret) tool.authorization = secret;
    tool.require_approval = server.approval || "always";
    tools.push(tool);
  }
  return tools;
}

/** The body of `POST /v1/responses`. Raises `SettingsError`. */
export function requestBody(settings, input, secrets = {}) {
  const body = { model: settings.model, input };
  if (settings.instructions.trim()) body.instructions = settings.instructions;
  for (const name of ["temperature", "top_p", "max_output_tokens"]) {
    if (String(settings[name]).trim()) body[name] = number(settings[name], name);
  }
  if (settings.effort) body.reasoning = { effort: settings.effort };
  const tools = toolsOf(settings, secrets);
  if (tools.length) body.tools = tools;
  if (settings.tool_choice && tools.length) body.tool_choice = settings.tool_choice;
  if (settings.format === "json_object") body.text = { format: { type: "json_object" } };
  if (settings.format === "json_schema") {
    const schema = json(settings.schema || "", "The schema");
    body.text = { format: { type: "json_schema", name: "answer", schema, strict: true } };
  }
  if (settings.background) body.background = true;
  if (!settings.store && !settings.background) body.store = false;
  body.stream = true;
  if (settings.extra.trim()) Object.assign(body, json(settings.extra, "Further parameters"));
  return body;
}

// "Show code". Long data of images and files is cut: the code shows its shape.

function shortened(value) {
  if (typeof value === "string") return value.length > 2000 ? `${value.slice(0, 60)}…` : value;
  if (Array.isArray(value)) return value.map(shortened);
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, key === "authorization" ? "YOUR_TOKEN" : shortened(each)]));
  return value;
}

/** An input of one message with one text is written as a string. */
function plain(body) {
  const { input } = body;
  const only = input.length === 1 && input[0].role === "user" && input[0].content;
  const text = only && (typeof only === "string" ? only : only.length === 1 && only[0].type === "input_text" && only[0].text);
  return shortened(text ? { ...body, input: text } : body);
}

function python(value, indent) {
  const inner = `${indent}    `;
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return value.length ? `[\n${value.map((each) => `${inner}${python(each, inner)},\n`).join("")}${indent}]` : "[]";
  if (typeof value === "object") {
    const pairs = Object.entries(value);
    return pairs.length ? `{\n${pairs.map(([key, each]) => `${inner}${JSON.stringify(key)}: ${python(each, inner)},\n`).join("")}${indent}}` : "{}";
  }
  return JSON.stringify(value).replace(/\u2028|\u2029/g, (found) => `\\u${found.charCodeAt(0).toString(16)}`);
}

export function asPython(body, root, keyed) {
  const given = plain(body);
  const identifier = /^[A-Za-z_]\w*$/;
  const named = Object.entries(given).filter(([name]) => identifier.test(name));
  const other = Object.fromEntries(Object.entries(given).filter(([name]) => !identifier.test(name)));
  if (Object.keys(other).length) named.push(["extra_body", other]);
  const lines = named.map(([name, value]) => `    ${name}=${python(value, "    ")},`).join("\n");
  return `${keyed ? "import os\n\n" : ""}from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(`${root}/v1`)}, api_key=${keyed ? 'os.environ["LITEGATE_API_KEY"]' : '"none"'})
stream = client.responses.create(
${lines}
)
for event in stream:
    if event.type == "response.output_text.delta":
        print(event.delta, end="", flush=True)
print()
`;
}

export function asNode(body, root, keyed) {
  const given = JSON.stringify(plain(body), null, 2);
  return `import OpenAI from "openai";

const client = new OpenAI({ baseURL: ${JSON.stringify(`${root}/v1`)}, apiKey: ${keyed ? "process.env.LITEGATE_API_KEY" : '"none"'} });
const stream = await client.responses.create(${given});
for await (const event of stream) {
  if (event.type === "response.output_text.delta") process.stdout.write(event.delta);
}
console.log();
`;
}

export function asCurl(body, root, keyed) {
  const given = JSON.stringify(plain(body), null, 2).replaceAll("'", "'\\''");
  return `curl -N ${root}/v1/responses \\
  -H 'content-type: application/json' \\
${keyed ? '  -H "authorization: Bearer $LITEGATE_API_KEY" \\\n' : ""}  -d '${given}'
`;
}

// A response from its events. What the stream has not finished is shown as far as it has come.

const ENDS = new Set(["response.completed", "response.incomplete", "response.failed", "response.cancelled"]);

/** Apply one event to `response` (null before the first). Returns the response; items are changed in place. */
export function fold(response, event) {
  const type = event.type;
  if (type === "error") {
    const error = event.error || event;
    return { ...(response || { output: [] }), status: "failed", error: { code: error.code, message: error.message } };
  }
  if (event.response) {
    if (ENDS.has(type) || response === null) return { ...event.response, output: event.response.output || [] };
    return { ...event.response, output: response.output };
  }
  if (response === null) return null;
  const output = response.output;
  switch (type) {
    case "response.output_item.added":
    case "response.output_item.done":
      output[event.output_index] = event.item;
      return response;
    default:
  }
  const item = output[event.output_index];
  if (!item) return response;
  switch (type) {
    case "response.content_part.added":
    case "response.content_part.done":
      (item.content ||= [])[event.content_index] = event.part;
      break;
    case "response.output_text.delta":
      part(item, event, "output_text").text += event.delta;
      break;
    case "response.output_text.annotation.added":
      (part(item, event, "output_text").annotations ||= []).push(event.annotation);
      break;
    case "response.refusal.delta": {
      const refusal = part(item, event, "refusal");
      refusal.refusal = (refusal.refusal || "") + event.delta;
      break;
    }
    case "response.reasoning_text.delta":
      part(item, event, "reasoning_text").text += event.delta;
      break;
    case "response.reasoning_summary_part.added":
    case "response.reasoning_summary_part.done":
      (item.summary ||= [])[event.summary_index] = event.part;
      break;
    case "response.reasoning_summary_text.delta":
      ((item.summary ||= [])[event.summary_index] ||= { type: "summary_text", text: "" }).text += event.delta;
      break;
    case "response.function_call_arguments.delta":
    case "response.mcp_call_arguments.delta":
      item.arguments = (item.arguments || "") + event.delta;
      break;
    case "response.custom_tool_call_input.delta":
      item.input = (item.input || "") + event.delta;
      break;
    case "response.code_interpreter_call_code.delta":
      item.code = (item.code || "") + event.delta;
      break;
    default:
      if (/_call\.(in_progress|searching|interpreting|generating|completed|failed)$/.test(type)) item.status = type.slice(type.lastIndexOf(".") + 1);
  }
  return response;
}

function part(item, event, type) {
  return ((item.content ||= [])[event.content_index] ||= { type, text: "" });
}

/** Whether `event` carries something that the model wrote. */
export const isOutput = (event) => event.type.endsWith(".delta") || event.type === "response.output_item.added";

export const isRunning = (response) => Boolean(response) && (response.status === "in_progress" || response.status === "queued");

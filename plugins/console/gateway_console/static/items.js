// How each kind of output item is shown.

import { getBlob } from "./api.js";
import { append, download, fill, h, icon, link, prettyJson, visible } from "./dom.js";
import { codeBlock } from "./code.js";
import { GrowingMarkdown } from "./markdown.js";

const CARD = {
  function_call: (item) => [`Calls ${item.name}`, item.arguments && ["Arguments", prettyJson(item.arguments), "json"]],
  custom_tool_call: (item) => [`Calls ${item.name}`, item.input && ["Input", item.input]],
  mcp_call: (item) => [
    `${item.server_label} · ${item.name}`,
    item.arguments && ["Arguments", prettyJson(item.arguments), "json"],
    item.output && ["Result", prettyJson(item.output)],
    item.error && ["Error", typeof item.error === "string" ? item.error : item.error.message || JSON.stringify(item.error)],
  ],
  mcp_list_tools: (item) => [`Tools of ${item.server_label}`, ["Tools", (item.tools || []).map((tool) => `${tool.name}${tool.description ? ` — ${tool.description}` : ""}`).join("\n")], item.error && ["Error", String(item.error.message || item.error)]],
  mcp_approval_request: (item) => [`Asks to call ${item.name} of ${item.server_label}`, ["Arguments", prettyJson(item.arguments || "{}"), "json"]],
  web_search_call: (item) => [searching(item.action)],
  file_search_call: (item) => [`Searches files: ${(item.queries || []).join(", ")}`, item.results?.length && ["Found", item.results.map((each) => `${each.filename || each.file_id}${each.score === undefined ? "" : ` (${each.score.toFixed(2)})`}`).join("\n")]],
  code_interpreter_call: (item) => ["Runs Python", item.code && ["Code", item.code, "python"], item.outputs?.length && ["Output", item.outputs.map((each) => each.logs ?? `[${each.type}]`).join("\n")]],
  shell_call: (item) => ["Runs a shell", ["Commands", (item.action?.commands || []).join("\n"), "sh"]],
  shell_call_output: (item) => ["Output of the shell", ["Output", (item.output || []).map((each) => [each.stdout, each.stderr].filter(Boolean).join("\n")).join("\n")]],
  image_generation_call: () => ["Makes an image"],
};

function searching(action) {
  if (!action) return "Searches the web";
  if (action.type === "open_page") return `Reads ${action.url || "a page"}`;
  if (action.type === "find_in_page") return `Looks for “${action.pattern}” in ${action.url || "a page"}`;
  return `Searches the web: ${(action.queries || [action.query]).filter(Boolean).join(", ")}`;
}

/** Shows one item; `update` may be called again and again while it grows. */
export function itemView(item) {
  if (item.type === "message") return new MessageView();
  if (item.type === "reasoning") return new ReasoningView();
  return new CardView();
}

class MessageView {
  constructor() {
    this.element = h("div", { class: "message" });
    this.parts = [];
    this.sources = h("div");
    this.element.append(this.sources);
  }

  update(item, ended) {
    const annotations = [];
    (item.content || []).forEach((part, index) => {
      let view = this.parts[index];
      if (!view) {
        view = this.parts[index] = new GrowingMarkdown();
        this.element.insertBefore(view.element, this.sources);
      }
      if (part.type === "refusal") view.element.classList.add("refusal");
      view.update(part.text ?? part.refusal ?? "", ended);
      annotations.push(...(part.annotations || []));
    });
    if (ended && annotations.length) fill(this.sources, sources(annotations));
  }
}

function sources(annotations) {
  const seen = new Map();
  for (const each of annotations) seen.set(each.url || each.file_id, each);
  return h("ul", { class: "sources", "aria-label": "Sources" }, [...seen.values()].map((each) => {
    if (each.type === "url_citation") return h("li", {}, link(each.title || each.url, each.url));
    const name = each.filename || each.file_id;
    const path = each.container_id ? `/v1/containers/${encodeURIComponent(each.container_id)}/files/${encodeURIComponent(each.file_id)}/content` : `/v1/files/${encodeURIComponent(each.file_id)}/content`;
    const button = h("button", { type: "button", class: "linklike", onclick: async () => {
      try {
        download(name, await getBlob(path));
      } catch (error) {
        button.after(h("span", { class: "error" }, ` ${error.message}`));
      }
    } }, name);
    return h("li", {}, button);
  }));
}

class ReasoningView {
  constructor() {
    this.label = h("span", {}, "Thinking");
    this.text = new GrowingMarkdown();
    this.summary = h("summary", { onclick: () => { this.chosen = true; } }, icon("down"), this.label);
    this.element = h("details", { class: "reasoning" }, this.summary, this.text.element);
    this.chosen = false; // whether the reader has opened or closed it
    this.began = null;
  }

  update(item, ended) {
    const texts = [...(item.summary || []), ...(item.content || [])].map((part) => part?.text || "");
    const text = texts.filter(Boolean).join("\n\n");
    if (!ended) this.began ??= performance.now();
    const took = this.began === null ? "" : ` for ${Math.max(1, Math.round((performance.now() - this.began) / 1000))} s`;
    if (!ended) this.label.textContent = "Thinking…";
    else if (!this.ended) this.label.textContent = took ? `Thought${took}${text ? "" : " (not shown)"}` : text ? "Thoughts" : "Thoughts (not shown)";
    this.ended = ended;
    // Shown while it is written, and folded at its end.
    if (!this.chosen) this.element.open = Boolean(!ended && text);
    this.text.update(text, ended);
  }
}

class CardView {
  constructor() {
    this.title = h("span", { class: "card-title" });
    this.state = h("span", { class: "state" });
    this.body = h("div", { class: "card-body" });
    this.element = h("details", { class: "card" }, h("summary", {}, icon("down"), this.title, this.state), this.body);
  }

  update(item, ended) {
    const known = CARD[item.type];
    const [title, ...sections] = known ? known(item) : [item.type, ["Item", JSON.stringify(item, null, 2), "json"]];
    this.title.textContent = visible(title);
    const status = item.status && item.status !== "completed" ? item.status.replace("_", " ") : "";
    this.state.textContent = item.error ? "failed" : status;
    this.state.classList.toggle("bad", Boolean(item.error) || item.status === "failed");
    const shown = sections.filter(Boolean);
    if (!this.drawn) this.element.open = item.type === "function_call" || item.type === "custom_tool_call" || item.type === "mcp_approval_request";
    this.drawn = true;
    fill(this.body, shown.map(([name, text, language]) => [h("div", { class: "label" }, name), codeBlock(visible(text), language)]));
    if (ended && item.type === "image_generation_call" && item.result) append(this.body, [h("img", { src: `data:image/png;base64,${item.result}`, alt: "The generated image" })]);
  }
}

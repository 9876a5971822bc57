// The settings of the next request.

import { fill, field, h, icon, iconButton } from "./dom.js";
import { DEFAULTS } from "./request.js";
import { preferences } from "./store.js";

const SERVER_TOOLS = { web_search: "Web search", file_search: "File search", code_interpreter: "Code interpreter", shell: "Shell" };
const EXAMPLE_FUNCTION = `[{
  "name": "get_weather",
  "description": "Get the weather in a city",
  "parameters": {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"]
  }
}]`;
const EXAMPLE_SCHEMA = `{
  "type": "object",
  "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
  "required": ["name", "age"],
  "additionalProperties": false
}`;

export class Settings {
  constructor(session, changed) {
    this.session = session;
    this.changed = changed;
    this.values = { ...DEFAULTS, ...preferences.get("settings", {}) };
    this.element = h("div", { class: "settings" });
    this.models = [];
    this.toolTypes = null;
    this.modelSelect = h("select", { "aria-label": "Model", onchange: () => this.set("model", this.modelSelect.value) });
    this.draw();
  }

  set(name, value) {
    this.values[name] = value;
    preferences.set("settings", this.values);
    this.changed();
  }

  /** The models that generate, from `GET /v1/models`. */
  offer(models) {
    this.models = models.filter((model) => !model.capabilities || model.capabilities.includes("generation"));
    if (!this.models.some((model) => model.id === this.values.model)) this.values.model = this.models[0]?.id || "";
    fill(this.modelSelect, this.models.map((model) => h("option", { value: model.id }, model.state === "unavailable" ? `${model.id} (unavailable)` : model.id)));
    this.modelSelect.value = this.values.model;
    this.changed();
  }

  /** The types of tools that the gateway has; null if it does not tell. A chosen one that it lacks is chosen no more. */
  offerTools(types) {
    this.toolTypes = types && new Set(types);
    this.values.serverTools = this.values.serverTools.filter((type) => this.offers(type));
    this.draw();
    this.changed();
  }

  offers(type) {
    return !this.toolTypes || this.toolTypes.has(type);
  }

  /** Why the chosen model cannot take these items; null if it can, or if it does not tell. */
  refusal(input) {
    const { id, capabilities } = this.models.find((each) => each.id === this.values.model) || {};
    const has = (type) => input.some((item) => Array.isArray(item.content) && item.content.some((part) => part.type === type));
    return capabilities && !capabilities.includes("images") && has("input_image") ? `The model ${id} takes no images. Choose another model, or remove the image.` : null;
  }

  input(name, attributes = {}) {
    return h("input", { value: this.values[name], autocomplete: "off", oninput: (event) => this.set(name, event.target.value), ...attributes });
  }

  area(name, rows, attributes = {}) {
    return h("textarea", { rows, spellcheck: "false", value: this.values[name], oninput: (event) => this.set(name, event.target.value), ...attributes });
  }

  select(name, options) {
    const control = h("select", { onchange: () => { this.set(name, control.value); this.reveal(); } }, Object.entries(options).map(([value, text]) => h("option", { value }, text)));
    control.value = this.values[name];
    return control;
  }

  check(name, text, hint = "") {
    return h("label", { class: "check" }, h("input", { type: "checkbox", checked: this.values[name], onchange: (event) => this.set(name, event.target.checked) }), h("span", {}, text, hint && h("span", { class: "hint" }, ` ${hint}`)));
  }

  draw() {
    this.schemaField = field("JSON schema", this.area("schema", "8", { class: "mono", placeholder: EXAMPLE_SCHEMA }));
    this.storesField = field("Vector stores", this.input("vectorStores", { placeholder: "vs_…" }), "Ids, separated by commas.");
    this.mcpList = h("div");
    fill(this.element,
      section("Prompt", true,
        field("Instructions", this.area("instructions", "3", { placeholder: "You are a helpful assistant." }))),
      section("Sampling", true,
        h("div", { class: "grid" },
          field("Temperature", this.input("temperature", { inputmode: "decimal", placeholder: "default" })),
          field("Top p", this.input("top_p", { inputmode: "decimal", placeholder: "default" })),
          field("Max tokens", this.input("max_output_tokens", { inputmode: "numeric", placeholder: "no limit" })),
          field("Reasoning", this.select("effort", { "": "default", none: "none", minimal: "minimal", low: "low", medium: "medium", high: "high" })))),
      section("Tools", Boolean(this.values.functions || this.values.serverTools.length || this.values.mcp.length),
        field("Functions", this.area("functions", "5", { class: "mono", placeholder: EXAMPLE_FUNCTION }), "A JSON list. You are asked for each result."),
        h("button", { type: "button", class: "linklike", onclick: () => { this.set("functions", EXAMPLE_FUNCTION); this.draw(); } }, "Insert an example"),
        h("fieldset", { hidden: !Object.keys(SERVER_TOOLS).some((type) => this.offers(type)) }, h("legend", {}, "Run by the gateway"),
          Object.entries(SERVER_TOOLS).filter(([type]) => this.offers(type)).map(([type, name]) => h("label", { class: "check" }, h("input", { type: "checkbox", checked: this.values.serverTools.includes(type), onchange: (event) => {
            const others = this.values.serverTools.filter((each) => each !== type);
            this.set("serverTools", event.target.checked ? [...others, type] : others);
            this.reveal();
          } }), h("span", {}, name)))),
        this.storesField,
        h("div", { class: "label" }, "MCP servers"), this.mcpList,
        h("button", { type: "button", class: "small", onclick: () => { this.set("mcp", [...this.values.mcp, { label: "", url: "", approval: "always" }]); this.drawMcp(); } }, icon("plus"), "Add an MCP server"),
        field("Tool choice", this.select("tool_choice", { "": "auto", required: "required", none: "none" }))),
      section("Output", this.values.format !== "text",
        field("Format", this.select("format", { text: "Text", json_object: "JSON", json_schema: "JSON schema" })), this.schemaField),
      section("Run", this.values.background,
        this.check("background", "In the background", "goes on when this page is closed"),
        this.check("store", "Store on the gateway", "can be looked up by its id")),
      section("Further parameters", Boolean(this.values.extra),
        field("JSON", this.area("extra", "4", { class: "mono", placeholder: '{"seed": 7, "top_k": 20}' }), "Added to the request as they are.")),
      h("button", { type: "button", class: "small", onclick: () => { this.values = { ...DEFAULTS, model: this.values.model }; this.set("model", this.values.model); this.draw(); } }, "Reset to defaults"));
    this.drawMcp();
    this.reveal();
  }

  reveal() {
    this.schemaField.hidden = this.values.format !== "json_schema";
    this.storesField.hidden = !this.values.serverTools.includes("file_search");
  }

  drawMcp() {
    const change = (server, name, value) => {
      server[name] = value;
      this.set("mcp", this.values.mcp);
    };
    fill(this.mcpList, this.values.mcp.map((server, index) => h("fieldset", { class: "mcp" }, h("legend", {}, `MCP server ${index + 1}`),
      field("Label", h("input", { value: server.label, oninput: (event) => change(server, "label", event.target.value) })),
      field("URL", h("input", { value: server.url, placeholder: "empty: a server that is configured", oninput: (event) => change(server, "url", event.target.value) })),
      field("Authorization", h("input", { type: "password", autocomplete: "off", oninput: (event) => { this.session.secrets[server.label] = event.target.value; } }), "Kept in memory only."),
      h("div", { class: "row" },
        field("Approval", h("select", { onchange: (event) => change(server, "approval", event.target.value) }, h("option", { value: "always" }, "ask each time"), h("option", { value: "never", selected: server.approval === "never" }, "never ask"))),
        iconButton("bin", "Remove this server", () => { this.set("mcp", this.values.mcp.filter((each) => each !== server)); this.drawMcp(); })))));
  }
}

function section(title, open, ...children) {
  return h("details", { class: "section", open }, h("summary", {}, icon("down"), title), h("div", { class: "section-body" }, children));
}

// Looking into the gateway: models, stored responses and conversations, and how it does.

import { get, getBlob, post, remove, ROOT } from "./api.js";
import { append, h, icon } from "./dom.js";
import { isRunning } from "./fold.js";
import { itemView } from "./items.js";
import { codeBlock } from "./code.js";
import { modelDetails } from "./admin.js";
import { reference } from "./reference.js";
import { timeline } from "./requests.js";
import { badge, facts, shown, silence, table, view } from "./views.js";

const path = encodeURIComponent;

const time = (unix) => (unix ? new Date(unix * 1000).toLocaleString() : "");

const KNOWN = new Set(["id", "object", "created", "owned_by", "root", "parent", "max_model_len", "capabilities", "state", "aliases", "description"]);

/** Loads or unloads a model, which needs an admin key; afterwards the list is drawn anew. */
function changeButton(model, redraw) {
  if (model.parent || !["loaded", "unloaded"].includes(model.state)) return null;
  const verb = model.state === "loaded" ? "unload" : "load";
  const note = h("span", { class: "error", role: "alert" });
  const label = verb === "load" ? "Load" : "Unload";
  const button = h("button", { type: "button", class: "small", title: "Needs an admin key", "aria-label": `${label} ${model.id}`, onclick: async () => {
    note.textContent = "";
    button.disabled = true;
    try {
      await post(`/v1/models/${model.id.split("/").map(path).join("/")}/${verb}`);
      redraw();
    } catch (error) {
      note.textContent = error.message;
      button.disabled = false;
    }
  } }, label);
  return h("div", { class: "row" }, button, note);
}

export function modelsView() {
  const body = h("div");
  const draw = () => shown(body, async () => {
    const [{ data }, { models, silent }] = await Promise.all([get("/v1/models"), modelDetails()]);
    return [silence(silent), data.map((model) => h("section", { class: "tile" }, h("h2", {}, model.id, model.state && badge(model.state, model.state === "ready" || model.state === "loaded")),
      model.description && h("p", {}, model.description),
      facts([["Context", model.max_model_len && `${model.max_model_len.toLocaleString()} tokens`], ["Does", (model.capabilities || []).join(", ")], ["Aliases", (model.aliases || []).join(", ")],
        ["Adapter of", model.parent], ["Since", time(model.created)],
        ...Object.entries(model).filter(([name]) => !KNOWN.has(name)).map(([name, value]) => [name, typeof value === "object" ? JSON.stringify(value) : String(value)]), ...(models.get(model.id)?.facts || [])]),
      models.get(model.id)?.chart,
      changeButton(model, draw)))];
  });
  draw();
  return view("Models", "What requests may name, from /v1/models. Loading and unloading needs an admin key, if the gateway has keys.", body);
}

export function storedView(session, id = "") {
  const body = h("div");
  const input = h("input", { value: id, placeholder: "resp_… or conv_…", "aria-label": "Id of a response or conversation" });
  const known = [];
  for (const conversation of session.list) {
    for (const turn of Object.values(conversation.turns)) {
      if (turn.response?.id && turn.response.store !== false) known.push([turn.response, conversation, turn.status === "stopped" && isRunning(turn.response)]);
    }
  }
  known.sort(([one], [other]) => (other.created_at || 0) - (one.created_at || 0));
  if (id) shown(body, () => (id.startsWith("conv") ? storedConversation(id) : storedResponse(id, () => { location.hash = "#/stored"; })));
  else if (known.length) {
    append(body, [h("h2", {}, "Of this browser's conversations"), table("Stored responses", ["Response", "Status", "Model", "Created", "Conversation"],
      known.slice(0, 100).map(([response, conversation, stopped]) => [h("a", { href: `#/stored/${response.id}` }, `${response.id.slice(0, 18)}…`), stopped ? "stopped" : response.status, response.model, time(response.created_at), conversation.title]))]);
  }
  return view("Stored", "Responses and conversations that the gateway keeps for your API key, by id.",
    h("form", { class: "row", onsubmit: (event) => { event.preventDefault(); location.hash = `#/stored/${path(input.value.trim())}`; } }, input, h("button", { type: "submit", class: "primary" }, "Look up")), body);
}

async function storedResponse(id, gone) {
  const [response, items] = await Promise.all([get(`/v1/responses/${path(id)}`), get(`/v1/responses/${path(id)}/input_items?order=asc&limit=100`)]);
  const usage = response.usage;
  const note = h("p", { class: "error", role: "alert" });
  const act = (work, after) => async () => {
    try {
      await work();
      after();
    } catch (error) {
      note.textContent = error.message;
    }
  };
  return [
    facts([["Status", badge(response.status, response.status === "completed")], ["Model", response.model], ["Created", time(response.created_at)], ["Completed", time(response.completed_at)],
      ["Tokens", usage && `${usage.input_tokens} in, ${usage.output_tokens} out`], ["Error", response.error?.message],
      ["Follows", response.previous_response_id && h("a", { href: `#/stored/${response.previous_response_id}` }, response.previous_response_id)],
      ["Conversation", response.conversation && h("a", { href: `#/stored/${response.conversation.id}` }, response.conversation.id)]]),
    h("div", { class: "row" },
      response.background && ["queued", "in_progress"].includes(response.status) && h("button", { type: "button", onclick: act(() => post(`/v1/responses/${path(id)}/cancel`), () => location.reload()) }, "Cancel"),
      h("button", { type: "button", onclick: act(() => remove(`/v1/responses/${path(id)}`), gone) }, "Delete")), note,
    await timelineOf(id),
    h("h2", {}, "Input"), listed(items.data),
    h("h2", {}, "Output"), listed(response.output),
    h("details", { class: "card" }, h("summary", {}, icon("down"), "The whole response as JSON"), codeBlock(JSON.stringify(response, null, 2), "json")),
  ];
}

/** The times of a response that runs or has ended lately, for administrators. */
async function timelineOf(id) {
  try {
    const { running, ended } = await get("/v1/gateway/runs");
    const run = [...running, ...ended].find((each) => each.response_id === id);
    return run ? [h("h2", {}, "Timeline"), timeline(run)] : h("p", { class: "hint" }, "Its timeline is not here: this server has those of the last requests that it ran itself, not those of other replicas.");
  } catch (error) {
    if (error.status !== 403) throw error;
    return null;
  }
}

async function storedConversation(id) {
  const [conversation, items] = await Promise.all([get(`/v1/conversations/${path(id)}`), get(`/v1/conversations/${path(id)}/items?order=asc&limit=100`)]);
  return [facts([["Created", time(conversation.created_at)], ["Metadata", JSON.stringify(conversation.metadata)]]), h("h2", {}, "Items"), listed(items.data), items.has_more && h("p", { class: "hint" }, "Only the first 100 items are shown.")];
}

function listed(items) {
  return h("ol", { class: "item-list" }, items.map((item) => {
    const known = item.type === "message" ? { ...item, content: [].concat(item.content).map((part) => (typeof part === "string" ? { text: part } : part)) } : item;
    const made = itemView(known);
    made.update(known, true);
    return h("li", {}, h("div", { class: "label" }, item.role || item.type), made.element);
  }));
}

export function referenceView() {
  const body = h("div");
  const filter = h("input", { type: "search", placeholder: "Filter by path or words", "aria-label": "Filter" });
  shown(body, async () => {
    const drawn = h("div", { class: "reference" });
    await reference(drawn, filter);
    return drawn;
  });
  return view("API", ["Each operation, with its types, from ", h("a", { href: `${ROOT}/openapi.json` }, "/openapi.json"), "."], filter, body);
}

export function serverView() {
  const health = h("div");
  const load = h("div");
  shown(health, async () => {
    try {
      const ready = await get("/ready");
      return facts([["State", badge(ready.status, true)], ["Unavailable models", (ready.unavailable_models || []).join(", ")]]);
    } catch (error) {
      return facts([["State", badge("not ready", false)], ["Why", error.message]]);
    }
  });
  shown(load, async () => {
    try {
      return figures(await (await getBlob("/metrics")).text());
    } catch {
      return h("p", { class: "hint" }, "Metrics are off, or not shown to this API key: server.metrics names the keys that may read them.");
    }
  });
  const parts = h("div");
  shown(parts, async () => {
    try {
      return inventory(await get("/v1/gateway"));
    } catch (error) {
      if (error.status !== 403) throw error;
      return h("p", { class: "hint" }, error.message);
    }
  });
  return view("Server", "Whether it can serve, what runs now, and what it consists of.", health, h("h2", {}, "Requests, responses and tokens since the start"), load, parts);
}

function inventory(info) {
  const bad = info.plugins.filter((each) => each.state === "failed");
  return [
    h("h2", {}, "Plugins"),
    table("Plugins", ["Kind", "Name", "Package", "Version", "State", ""], [...bad, ...info.plugins.filter((each) => !bad.includes(each))].map((each) => [each.kind, each.name, each.distribution, each.version, badge(each.state, ["selected", "active"].includes(each.state) || (each.state === "failed" ? false : null)), each.note])),
  ];
}

/** The lines of Prometheus' text format, as name, labels and value. */
function samples(text) {
  const found = [];
  for (const line of text.split("\n")) {
    const parts = /^(gateway_\w+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!parts || /_(bucket|created)$/.test(parts[1])) continue;
    const labels = Object.fromEntries([...(parts[2] || "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map((each) => [each[1], each[2]]));
    found.push({ name: parts[1], labels, value: Number(parts[3]) });
  }
  return found;
}

function figures(text) {
  const all = samples(text);
  const models = new Map();
  const add = (model, column, value) => {
    if (!models.has(model)) models.set(model, {});
    models.get(model)[column] = (models.get(model)[column] || 0) + value;
  };
  for (const { name, labels, value } of all) {
    if (!labels.model) continue;
    if (name === "gateway_running_requests") add(labels.model, "running", value);
    if (name === "gateway_waiting_requests") add(labels.model, "waiting", value);
    if (name === "gateway_responses_total") add(labels.model, labels.status, value);
    if (name === "gateway_tokens_total") add(labels.model, labels.kind, value);
  }
  const shownColumns = ["running", "waiting", "completed", "incomplete", "failed", "cancelled", "input", "cached", "output"];
  const rest = all.filter(({ labels }) => !/^\/(console\/.*)?$/.test(labels.route || "-"));
  return [
    models.size ? table("Models", ["Model", ...shownColumns], [...models].map(([model, values]) => [model, ...shownColumns.map((column) => (values[column] || 0).toLocaleString())])) : null,
    h("details", { class: "card" }, h("summary", {}, icon("down"), `All metrics (${rest.length})`),
      table("All metrics", ["Metric", "Labels", "Value"], rest.slice(0, 500).map(({ name, labels, value }) => [name.replace(/^gateway_/, ""), h("span", { class: "mono" }, Object.entries(labels).map(([key, each]) => `${key}=${each}`).join(" ")), value.toLocaleString()]))),
  ];
}

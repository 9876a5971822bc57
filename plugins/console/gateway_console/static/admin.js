// What only administrators see: API keys and their use, the configuration, and how the models' queues were.

import { get } from "./api.js";
import { drawn, fill, h } from "./dom.js";
import { badge, shown, silence, table, view } from "./views.js";

const count = (value) => (value === null ? "" : value.toLocaleString());
const date = (unix, none) => (unix ? new Date(unix * 1000).toLocaleString() : none);

function limits(key) {
  const found = [[key.requests_per_minute, "requests a minute"], [key.tokens_per_minute, "tokens a minute"], [key.tokens_per_day, "tokens a day"], [key.max_concurrent_requests, "at once"]];
  return found.filter(([value]) => value !== null).map(([value, name]) => h("div", {}, `${count(value)} ${name}`));
}

/** Tokens of today, and how much that is of the limit. */
function spent(key) {
  const most = key.tokens_per_day;
  if (most === null) return count(key.tokens_today);
  const label = `${count(key.tokens_today)} of ${count(most)} tokens today`;
  return h("div", {}, h("meter", { min: 0, max: most, value: Math.min(key.tokens_today, most), "aria-label": label }), h("div", {}, label));
}

export function keysView() {
  const body = h("div");
  shown(body, async () => {
    const answer = await get("/v1/gateway/keys");
    if (!answer.data.length) return h("p", { class: "hint" }, answer.needs_key ? "No API keys: authenticators know who sends requests." : "No API keys are configured: anyone who reaches the gateway may use it. The command gateway key NAME makes one.");
    return [
      table("API keys", ["Name", "Models", "Tools", "Limits", "Tokens today", "Requests today", "Tokens in 30 days", "Runs now", "Last used"], answer.data.map((key) => [
        h("div", {}, h("strong", {}, key.name), " ", key.admin && badge("admin", null), key.keys > 1 && h("div", { class: "hint" }, `${key.keys} keys`), key.expires && h("div", { class: "hint" }, `Until ${date(key.expires)}`)),
        key.models === null ? "all" : key.models.join(", ") || "none", key.tools === null ? "all" : key.tools.join(", ") || "none", limits(key),
        spent(key), count(key.requests_today), count(key.tokens_30_days), count(key.running), date(key.last_used, key.requests_30_days ? "before the last start" : "")])),
      silence(answer.silent),
      answer.total > answer.data.length && h("p", { class: "hint" }, `The first ${count(answer.data.length)} of ${count(answer.total)}.`),
    ];
  });
  return view("Keys", "API keys by name, what they may use and what they have used; days are those of UTC. Needs an admin key, if the gateway has keys.", body);
}

export function configView() {
  const body = h("div");
  const filter = h("input", { type: "search", placeholder: "Filter by key, value or place", "aria-label": "Filter" });
  const defaults = h("input", { type: "checkbox", id: "show-defaults" });
  shown(body, async () => {
    const answer = await get("/v1/gateway/config");
    const list = h("div");
    const draw = () => {
      const words = filter.value.trim().toLowerCase();
      const rows = answer.data.filter((each) => (defaults.checked || each.source !== "default") && (!words || `${each.key} ${JSON.stringify(each.value)} ${each.source}`.toLowerCase().includes(words)));
      fill(list, rows.length ? table("Settings", ["Key", "Value", "From"], rows.map((each) => [h("span", { class: "mono" }, each.key),
        [h("span", { class: "mono" }, JSON.stringify(each.value)), each.note && h("div", { class: "hint" }, each.note)], each.source])) : h("p", { class: "hint" }, "No setting is like that."));
    };
    filter.oninput = defaults.onchange = draw;
    draw();
    return list;
  });
  return view("Configuration", "The settings that are used and where each comes from. Secrets are hidden. Needs an admin key, if the gateway has keys.",
    filter, h("p", {}, defaults, " ", h("label", { for: "show-defaults" }, "Show defaults")), body);
}

/** The most requests that waited (above) and ran (below it) in each minute of the last hour. */
function queueChart(model) {
  const most = Math.max(1, ...model.queue.map((each) => each.running + each.waiting));
  const now = model.queue[model.queue.length - 1].at;
  const bars = model.queue.flatMap((each) => {
    const x = 59 - Math.round((now - each.at) / 60);
    const low = (20 * each.running) / most;
    const high = (20 * each.waiting) / most;
    return [drawn("rect", { class: "decoding", x, y: 20 - low, width: 0.8, height: low }), drawn("rect", { class: "tool", x, y: 20 - low - high, width: 0.8, height: high })];
  });
  const waited = Math.max(...model.queue.map((each) => each.waiting));
  const ran = Math.max(...model.queue.map((each) => each.running));
  return h("figure", { class: "queue" }, drawn("svg", { class: "queue-bars", viewBox: "0 0 60 20", preserveAspectRatio: "none", "aria-hidden": "true" }, bars),
    h("figcaption", { class: "hint" }, `Last hour, by minutes: at most ${count(ran)} ran and ${count(waited)} waited at a time.`));
}

/** What administrators see of models beside what everybody does: by their names, and which processes did not answer. */
export async function modelDetails() {
  try {
    const { data, silent } = await get("/v1/gateway/models");
    const models = new Map(data.map((model) => [model.id, {
      facts: [["Engine", model.engine], ["Queue now", `${count(model.running)} of ${count(model.max_running)} run, ${count(model.waiting)} of ${count(model.max_waiting)} wait`],
        ["Loaded", model.load === "on_demand" ? "on demand" : "at the start"], ["Unloaded after", model.idle_unload && `${model.idle_unload} idle seconds`], ["Failure", model.failure],
        ...Object.entries(model.measured).map(([name, value]) => [name, value.toLocaleString()])],
      chart: model.queue.length ? queueChart(model) : null,
    }]));
    return { models, silent };
  } catch (error) {
    if (error.status !== 403) throw error;
    return { models: new Map(), silent: [] };
  }
}

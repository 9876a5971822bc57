// The panel beside the conversation: settings, the request as code, and the events as they came.

import { fill, h } from "./dom.js";
import { codeBlock } from "./code.js";
import { asCurl, asNode, asPython, requestBody } from "./request.js";
import { key, ROOT } from "./api.js";

const LANGUAGES = { Python: [asPython, "python"], Node: [asNode, "js"], curl: [asCurl, "sh"] };
const SHOWN_EVENTS = 500;

export function tabs(label, panels, chosen) {
  const list = h("div", { class: "tabs", role: "tablist", "aria-label": label });
  const body = h("div", { class: "tab-body" });
  const names = Object.keys(panels);
  const buttons = names.map((name, index) => h("button", {
    type: "button", role: "tab", id: `${label}-tab-${index}`, "aria-controls": `${label}-panel-${index}`,
    onclick: () => choose(name),
    onkeydown: (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = (index + step + names.length) % names.length;
      choose(names[next]);
      buttons[next].focus();
    },
  }, name));
  const bodies = names.map((name, index) => h("div", { role: "tabpanel", id: `${label}-panel-${index}`, "aria-labelledby": `${label}-tab-${index}` }, panels[name].element));
  function choose(name) {
    names.forEach((each, index) => {
      buttons[index].setAttribute("aria-selected", String(each === name));
      buttons[index].tabIndex = each === name ? 0 : -1;
      bodies[index].hidden = each !== name;
    });
    panels[name].show?.();
    result.chosen = name;
  }
  list.append(...buttons);
  body.append(...bodies);
  const result = { element: h("div", { class: "tabbed" }, list, body), choose, refresh: () => panels[result.chosen].show?.() };
  choose(chosen || names[0]);
  return result;
}

/** An item as a client would write it: without its id, its state and empty lists. */
function written(item) {
  if (item.type !== "message" && item.type !== "function_call" && item.type !== "function_call_output") return item;
  const { id, status, ...rest } = item;
  if (!Array.isArray(rest.content)) return rest;
  return { ...rest, content: rest.content.map((part) => Object.fromEntries(Object.entries(part).filter(([, value]) => !(Array.isArray(value) && !value.length)))) };
}

export class CodePanel {
  constructor(session, settings, composer) {
    Object.assign(this, { session, settings, composer });
    this.language = "Python";
    this.choice = h("div", { class: "segments", role: "group", "aria-label": "Language" });
    this.code = h("div", { class: "request-code" });
    this.element = h("div", { class: "panel-pad" }, h("p", { class: "hint" }, "The next request of this conversation, with what is in the message box."), this.choice, this.code);
  }

  show() {
    const text = this.composer.area.value.trim();
    const { current } = this.session;
    let input = [...this.composer.attached.map((each) => each.part)];
    if (text || !input.length) input.push({ type: "input_text", text: text || "Hello!" });
    fill(this.choice, Object.keys(LANGUAGES).map((name) => h("button", { type: "button", "aria-pressed": String(name === this.language), onclick: () => { this.language = name; this.show(); } }, name)));
    try {
      const message = { role: "user", content: input };
      const last = current?.turns[current.leaf]?.response;
      // A client names the stored response, where the console, whose conversations have branches, sends all items.
      const stored = last?.status === "completed" && last.store !== false;
      const history = current && !stored ? this.session.history(current.leaf).map(written) : [];
      const { model, input: items, ...rest } = requestBody(this.settings.values, [...history, message]);
      const body = { model, ...(stored ? { previous_response_id: last.id } : {}), input: items, ...rest };
      const [write, language] = LANGUAGES[this.language];
      fill(this.code, codeBlock(write(body, ROOT, Boolean(key.get())), language));
    } catch (error) {
      fill(this.code, h("p", { class: "error" }, error.message));
    }
  }
}

export class EventsPanel {
  constructor(session) {
    this.session = session;
    this.list = h("ol", { class: "events" });
    this.summary = h("p", { class: "hint" });
    this.element = h("div", { class: "panel-pad" }, this.summary, this.list);
    this.turn = null;
    this.drawn = 0;
  }

  show() {
    const path = this.session.path();
    const turn = path[path.length - 1];
    const events = (turn && this.session.events.get(turn.id)) || null;
    if (events !== this.events || !events) {
      this.events = events;
      this.drawn = 0;
      fill(this.list);
    }
    if (!events) {
      this.summary.textContent = turn ? "The events of an answer are kept until the page is reloaded." : "Ask something: each event of the stream is shown here as it came.";
      return;
    }
    this.summary.textContent = `${events.length} events${events.length > SHOWN_EVENTS ? `, the first ${SHOWN_EVENTS} are shown` : ""}. Times are milliseconds since the request.`;
    for (; this.drawn < Math.min(events.length, SHOWN_EVENTS); this.drawn += 1) {
      const { at, event } = events[this.drawn];
      const body = h("div");
      const details = h("details", { ontoggle: () => { if (details.open && !body.firstChild) body.append(codeBlock(cut(JSON.stringify(event, null, 2)), "json")); } },
        h("summary", {}, h("span", { class: "time" }, at.toFixed(0)), h("span", { class: "type" }, event.type), event.delta && h("span", { class: "delta" }, JSON.stringify(event.delta).slice(0, 60))), body);
      this.list.append(h("li", {}, details));
    }
  }
}

const cut = (text) => (text.length > 100000 ? `${text.slice(0, 100000)}…` : text);

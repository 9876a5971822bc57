// The conversation: turns, their answers as they grow, and what a turn asks of the reader.

import { announce, copyButton, fill, h, icon, iconButton } from "./dom.js";
import { isRunning } from "./fold.js";
import { itemView } from "./items.js";
import { waitingFor } from "./session.js";

const EXAMPLES = ["What is the capital of France?", "Hello! Who are you?", "How many legs does a spider have?"];

const REST = 4; // times as long as a drawing took, until the next one

/** What a reader of this page can do about errors whose messages are for clients of the API. */
const WORDS = { unsupported_tool: "The gateway does not run one of the tools that are chosen, or not for this key. Take it out under Settings, Tools." };

export class Thread {
  constructor(session, actions) {
    this.session = session;
    this.actions = actions;
    this.element = h("div", { class: "thread", tabindex: "-1" });
    this.views = new Map();
    this.dirty = new Set();
    this.scheduled = false;
    this.restUntil = 0;
  }

  /** Show the conversation anew. Views of turns that are still shown are kept. */
  render() {
    const path = this.session.path();
    if (!path.length) {
      this.views.clear();
      fill(this.element, this.welcome());
      return;
    }
    const kept = new Map();
    const nodes = path.map((turn, index) => {
      const view = this.views.get(turn.id) || new TurnView(turn, this.session, this.actions);
      kept.set(turn.id, view);
      view.frame(index === path.length - 1);
      view.update();
      return view.element;
    });
    this.views = kept;
    this.element.replaceChildren(...nodes);
    this.stick(true);
  }

  /**
   * A turn has changed: it is drawn in the next frame. After a frame that took long the page rests four times as long, so that a long answer whose
   * drawing takes longer the more there is of it leaves time for everything else.
   */
  touch(turn) {
    this.dirty.add(turn.id);
    if (this.scheduled) return;
    this.scheduled = true;
    const wait = this.restUntil - performance.now();
    if (wait > 16) setTimeout(() => requestAnimationFrame(() => this.draw()), wait);
    else requestAnimationFrame(() => this.draw());
  }

  draw() {
    const began = performance.now();
    this.scheduled = false;
    const low = this.atEnd();
    for (const id of this.dirty) this.views.get(id)?.update();
    this.dirty.clear();
    this.stick(low);
    const now = performance.now();
    this.restUntil = now + REST * (now - began);
  }

  atEnd() {
    const area = this.element.parentElement;
    return !area || area.scrollHeight - area.scrollTop - area.clientHeight < 80;
  }

  stick(low) {
    const area = this.element.parentElement;
    if (low && area) area.scrollTop = area.scrollHeight;
  }

  welcome() {
    return h("div", { class: "welcome" },
      h("h1", {}, "Try a model"),
      h("p", {}, "What you send goes to this gateway and nowhere else. Conversations are kept in this browser."),
      h("div", { class: "examples" }, EXAMPLES.map((text) => h("button", { type: "button", onclick: () => this.actions.example(text) }, text))));
  }
}

class TurnView {
  constructor(turn, session, actions) {
    this.turn = turn;
    this.session = session;
    this.actions = actions;
    this.asked = h("div", { class: "asked" });
    this.items = h("div", { class: "items" });
    this.itemViews = [];
    this.done = [];
    this.note = h("div");
    this.forms = h("div");
    this.foot = h("div", { class: "foot" });
    this.element = h("article", { class: "turn", "aria-label": "Turn" }, this.asked,
      h("div", { class: "answer", role: "group", "aria-label": "Answer" }, this.items, this.note, this.forms, this.foot));
    this.shown = null;
  }

  /** What depends on the conversation around the turn. */
  frame(last) {
    this.last = last;
    this.shown = null;
    this.renderAsked();
  }

  renderAsked() {
    const { turn } = this;
    fill(this.asked, turn.input.map(inputView));
    const own = turn.input.some((item) => item.role === "user");
    this.asked.classList.toggle("user", own);
    if (!own) return;
    const text = textOf(turn.input);
    this.asked.append(h("div", { class: "tools" }, this.pager(), copyButton(text, "Copy message"), iconButton("edit", "Edit and ask again", () => this.edit(text))));
  }

  pager() {
    const siblings = this.session.siblings(this.turn);
    if (siblings.length < 2) return null;
    const at = siblings.indexOf(this.turn);
    const go = (step) => this.actions.choose(siblings[at + step]);
    return h("span", { class: "pager", role: "group", "aria-label": "Branches" },
      iconButton("left", "Previous branch", () => go(-1), { disabled: at === 0 }),
      h("span", {}, `${at + 1}/${siblings.length}`),
      iconButton("right", "Next branch", () => go(1), { disabled: at === siblings.length - 1 }));
  }

  edit(text) {
    const area = h("textarea", { "aria-label": "Message", rows: Math.min(10, text.split("\n").length + 1) });
    area.value = text;
    const ask = () => this.actions.edited(this.turn, area.value);
    fill(this.asked, h("form", { class: "edit", onsubmit: (event) => { event.preventDefault(); ask(); } }, area,
      h("div", { class: "row end" },
        h("button", { type: "button", onclick: () => this.renderAsked() }, "Cancel"),
        h("button", { type: "submit", class: "primary" }, "Ask again"))));
    area.focus();
  }

  update() {
    const { turn } = this;
    const running = this.session.running.has(turn.id);
    const output = turn.response?.output || [];
    output.forEach((item, index) => {
      let view = this.itemViews[index];
      if (!view || view.type !== item.type) {
        const made = Object.assign(itemView(item), { type: item.type });
        if (view) view.element.replaceWith(made.element);
        else this.items.append(made.element);
        view = this.itemViews[index] = made;
      }
      const ended = !running || index < output.length - 1 || item.status === "completed";
      if (this.done[index] === item && ended) return; // shown as it will stay
      view.update(item, ended);
      this.done[index] = ended && !running ? item : null;
    });
    this.items.setAttribute("aria-busy", String(running));
    const state = `${running}|${turn.status}|${turn.response?.status}|${Boolean(turn.error)}|${this.last}`;
    if (state === this.shown) return;
    this.shown = state;
    fill(this.note, this.notes(running));
    if (running) {
      fill(this.forms);
      fill(this.foot, h("span", { class: "working" }, turn.response?.status === "queued" ? "Queued" : "Working"),
        turn.background && h("span", {}, "in the background: this page may be closed"),
        !this.last && h("button", { type: "button", class: "linklike", onclick: () => this.session.stop(turn) }, "Stop"));
    } else {
      if (this.last) this.askReader();
      else fill(this.forms);
      fill(this.foot, this.statistics(), h("span", { class: "tools" },
        copyButton(() => output.filter((item) => item.type === "message").map((item) => (item.content || []).map((part) => part.text || "").join("")).join("\n\n"), "Copy answer"),
        iconButton("retry", "Answer again", () => this.actions.again(turn))));
    }
  }

  notes(running) {
    const { turn } = this;
    const notes = [];
    const error = turn.error || turn.response?.error;
    if (error) {
      const words = WORDS[error.code];
      const place = [error.code, error.param].filter((each) => each && each !== "None").join(" · ");
      notes.push(h("div", { class: "notice bad", role: "alert" }, h("p", {}, words || error.message), words && h("p", { class: "hint" }, error.message), place && h("p", { class: "hint" }, place)));
    }
    if (!running && turn.response?.status === "incomplete") {
      const reason = turn.response.incomplete_details?.reason;
      notes.push(h("div", { class: "notice" }, reason === "max_output_tokens" ? "The answer was cut off at the limit of tokens." : `The answer is incomplete: ${reason || "no reason was given"}.`));
    }
    if (!running && (turn.status === "stopped" || turn.response?.status === "cancelled")) notes.push(h("div", { class: "notice" }, "Stopped."));
    return notes;
  }

  statistics() {
    const { stats, response, model } = this.turn;
    const usage = response?.usage;
    const parts = [model];
    if (usage) {
      const cached = usage.input_tokens_details?.cached_tokens;
      const thought = usage.output_tokens_details?.reasoning_tokens;
      parts.push(`${usage.input_tokens} in${cached ? ` (${cached} cached)` : ""}`, `${usage.output_tokens} out${thought ? ` (${thought} reasoning)` : ""}`);
    }
    if (stats.first !== undefined) parts.push(`first token ${seconds(stats.first)}`);
    if (usage && stats.writing > 5 && usage.output_tokens > 1) {
      const rate = (usage.output_tokens - 1) / (stats.writing / 1000);
      parts.push(`${rate.toFixed(rate < 100 ? 1 : 0)} tokens/s`);
    }
    if (stats.total !== undefined) parts.push(`total ${seconds(stats.total)}`);
    if (response?.id && response.store !== false) parts.push(h("a", { href: `#/stored/${response.id}` }, "stored"));
    return h("span", { class: "stats" }, parts.filter(Boolean).map((part) => h("span", {}, part)));
  }

  /** Forms for the calls that the client runs, and for approvals. */
  askReader() {
    const waiting = waitingFor(this.turn);
    if (!waiting.length) return fill(this.forms);
    const inputs = waiting.map((item) => (item.type === "mcp_approval_request" ? approvalForm(item) : resultForm(item)));
    announce(waiting.length === 1 ? "The model waits for a result" : `The model waits for ${waiting.length} results`);
    return fill(this.forms, h("form", { class: "results", "aria-label": "Results", onsubmit: (event) => {
      event.preventDefault();
      this.actions.answer(this.turn, inputs.map((each) => each.item(event.submitter)));
    } }, inputs.map((each) => each.element),
    inputs.some((each) => each.sends) && h("div", { class: "row end" }, h("button", { type: "submit", class: "primary" }, "Send results"))));
  }
}

function resultForm(item) {
  const area = h("textarea", { rows: "2", placeholder: "What the function returned, e.g. {\"temperature\": 18}", "aria-label": `Result of ${item.name}` });
  const type = item.type === "function_call" ? "function_call_output" : "custom_tool_call_output";
  return {
    sends: true,
    element: h("div", { class: "field" }, h("span", { class: "label" }, `Result of ${item.name}`), area),
    item: () => ({ type, call_id: item.call_id, output: area.value }),
  };
}

function approvalForm(item) {
  const choice = h("select", { "aria-label": `Approve ${item.name}` }, h("option", { value: "yes" }, "Approve"), h("option", { value: "no" }, "Deny"));
  return {
    sends: true,
    element: h("div", { class: "field" }, h("span", { class: "label" }, `${item.server_label} · ${item.name}`), choice),
    item: () => ({ type: "mcp_approval_response", approval_request_id: item.id, approve: choice.value === "yes" }),
  };
}

const seconds = (milliseconds) => (milliseconds < 1000 ? `${Math.round(milliseconds)} ms` : `${(milliseconds / 1000).toFixed(1)} s`);

export const textOf = (input) => input.flatMap((item) => (typeof item.content === "string" ? [item.content] : (item.content || []).filter((part) => part.type === "input_text" && !part.text.startsWith("File ")).map((part) => part.text))).join("\n");

function inputView(item) {
  if (item.type === "function_call_output" || item.type === "custom_tool_call_output") {
    return h("details", { class: "card" }, h("summary", {}, icon("down"), h("span", { class: "card-title" }, "Result sent")), h("pre", {}, item.output));
  }
  if (item.type === "mcp_approval_response") return h("p", { class: "hint" }, item.approve ? "Approved." : "Denied.");
  const content = typeof item.content === "string" ? [{ type: "input_text", text: item.content }] : item.content || [];
  return h("div", { class: "bubble", role: "group", "aria-label": "Your message" }, content.map((part) => {
    if (part.type === "input_image") return h("img", { src: part.image_url?.startsWith("data:image/") ? part.image_url : null, alt: "Attached image" });
    if (part.type === "input_file") return h("p", { class: "file" }, icon("attach"), part.filename || "File");
    const file = /^File (.{1,200}?):\n/.exec(part.text || "");
    return file ? h("p", { class: "file" }, icon("attach"), file[1]) : h("p", { dir: "auto" }, part.text);
  }));
}

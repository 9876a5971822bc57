// The conversations of this page, and what runs in them. A conversation is a tree of turns: each has the items that were sent and the
// response that came. Another answer, or another question in the same place, is a sibling.

import { ApiError, post, resumed, streamed } from "./api.js";
import { fold, isOutput, isRunning } from "./fold.js";
import { requestBody } from "./request.js";
import { conversations } from "./store.js";

const KEPT_EVENTS = 5000;
const SAVE_MS = 400;
const FOREGROUND_SAVE_MS = 2000;
const RECONNECT_MS = 1000;
const id = () => crypto.getRandomValues(new Uint32Array(3)).reduce((text, each) => text + each.toString(36), "");

export class Session extends EventTarget {
  constructor() {
    super();
    this.list = [];
    this.current = null;
    this.running = new Map(); // turn id -> AbortController
    this.events = new Map(); // turn id -> the events as they came
    this.secrets = {}; // authorizations of MCP servers: in memory only
    this.saving = new Map();
    this.leaving = false;
  }

  async load() {
    this.list = await conversations.all();
  }

  /** Go on with background responses that ran when the page was left; mark what was lost with it. */
  resume() {
    for (const conversation of this.list) {
      for (const turn of Object.values(conversation.turns)) {
        if (turn.status !== "running" || this.running.has(turn.id)) continue;
        if (turn.background && turn.response?.id) this.follow(conversation, turn);
        else {
          turn.status = "stopped";
          this.save(conversation);
        }
      }
    }
  }

  open(conversation) {
    this.current = conversation;
    this.changed();
  }

  changed(turn = null) {
    this.dispatchEvent(new CustomEvent("change", { detail: turn }));
  }

  path(conversation = this.current) {
    const path = [];
    for (let at = conversation?.leaf; at; at = conversation.turns[at].parent) path.unshift(conversation.turns[at]);
    return path;
  }

  siblings(turn, conversation = this.current) {
    return Object.values(conversation.turns).filter((each) => each.parent === turn.parent);
  }

  /** Show `turn`, and after it what was said last. */
  choose(turn) {
    let leaf = turn;
    for (;;) {
      const after = Object.values(this.current.turns).filter((each) => each.parent === leaf.id);
      if (!after.length) break;
      leaf = after[after.length - 1];
    }
    this.current.leaf = leaf.id;
    this.save(this.current);
    this.changed();
  }

  async remove(conversation) {
    for (const turn of Object.values(conversation.turns)) this.stop(turn);
    this.list = this.list.filter((each) => each !== conversation);
    clearTimeout(this.saving.get(conversation.id));
    await conversations.remove(conversation.id);
    if (this.current === conversation) this.current = null;
    this.changed();
  }

  async clear() {
    for (const conversation of [...this.list]) await this.remove(conversation);
    await conversations.clear();
  }

  /** The items that a request after `parent` begins with. */
  history(parent) {
    const items = [];
    const path = [];
    for (let at = parent; at; at = this.current.turns[at].parent) path.unshift(this.current.turns[at]);
    for (const turn of path) {
      items.push(...turn.input);
      for (const item of turn.response?.output || []) {
        // What was cut off is left out, but the text that was read.
        if (item.status === "in_progress" && item.type !== "message") continue;
        items.push(item.status === "in_progress" ? { ...item, status: "incomplete" } : item);
      }
    }
    return items;
  }

  /** Ask: `input` after the turn `parent` (null at the beginning). Raises `SettingsError` before anything is shown. */
  ask(input, parent, settings) {
    let conversation = this.current;
    if (conversation === null) {
      conversation = { id: id(), title: titleOf(input), updated: Date.now(), turns: {}, leaf: null };
    }
    const before = this.current;
    this.current = conversation;
    let body;
    try {
      body = requestBody(settings, [...this.history(parent), ...input], this.secrets);
    } catch (error) {
      this.current = before;
      throw error;
    }
    if (!this.list.includes(conversation)) this.list.unshift(conversation);
    const turn = {
      id: id(),
      parent,
      input,
      model: body.model,
      background: Boolean(body.background),
      status: "running",
      response: null,
      error: null,
      sequence: null,
      stats: {},
    };
    conversation.turns[turn.id] = turn;
    conversation.leaf = turn.id;
    this.save(conversation); // what was asked outlasts the page, whatever becomes of the answer
    this.consume(conversation, turn, (signal) => streamed(body, signal));
    this.changed();
    return turn;
  }

  follow(conversation, turn) {
    this.consume(conversation, turn, (signal) => resumed(turn.response.id, turn.sequence, signal));
  }

  async consume(conversation, turn, stream) {
    const abort = new AbortController();
    this.running.set(turn.id, abort);
    const events = [];
    this.events.set(turn.id, events);
    const started = performance.now();
    const fresh = turn.response === null;
    let first = null;
    try {
      for await (const event of stream(abort.signal)) {
        if (fresh && first === null && isOutput(event)) {
          first = performance.now();
          turn.stats.first = first - started;
        }
        if (events.length < KEPT_EVENTS) events.push({ at: performance.now() - started, event });
        turn.response = fold(turn.response, event);
        if (typeof event.sequence_number === "number") turn.sequence = event.sequence_number;
        if (fresh && !isRunning(turn.response)) turn.stats.total = performance.now() - started;
        this.saveSoon(conversation, turn.background ? SAVE_MS : FOREGROUND_SAVE_MS);
        this.changed(turn);
      }
      if (isRunning(turn.response)) {
        turn.error = { message: "The stream ended before the response did." };
      }
      turn.status = "done";
    } catch (error) {
      if (error.name === "AbortError" || (this.leaving && error.code === "connection_lost" && !turn.background)) turn.status = "stopped";
      else if (turn.background && isRunning(turn.response) && error.code === "connection_lost") {
        // The response runs on without us, also while the page is being left.
        this.running.delete(turn.id);
        setTimeout(() => this.follow(conversation, turn), RECONNECT_MS);
        return;
      } else {
        turn.status = "done";
        turn.error = { message: error.message, code: error.code, param: error.param, status: error.status };
        if (!(error instanceof ApiError)) console.error(error);
        if (error.status === 401) this.dispatchEvent(new Event("unauthorized"));
      }
    }
    if (first !== null) turn.stats.writing = performance.now() - first;
    this.running.delete(turn.id);
    conversation.updated = Date.now();
    this.save(conversation);
    this.changed(turn);
    this.dispatchEvent(new CustomEvent("ended", { detail: turn }));
  }

  /** Stop a turn. Closing its connection ends the response; one in the background is cancelled. */
  async stop(turn) {
    if (!this.running.has(turn.id)) return;
    if (turn.background && turn.response?.id) {
      try {
        await post(`/v1/responses/${encodeURIComponent(turn.response.id)}/cancel`);
        return; // its stream ends
      } catch (error) {
        turn.error = { message: error.message };
      }
    }
    this.running.get(turn.id)?.abort();
  }

  saveSoon(conversation, after) {
    if (this.saving.has(conversation.id)) return;
    const timer = setTimeout(() => this.save(conversation), after);
    this.saving.set(conversation.id, timer);
  }

  /** The page is being left, which ends its connections. Save what waits to be saved. */
  leave() {
    this.leaving = true;
    for (const conversation of this.list) if (this.saving.has(conversation.id)) this.save(conversation);
  }

  save(conversation) {
    clearTimeout(this.saving.get(conversation.id));
    this.saving.delete(conversation.id);
    if (!this.list.includes(conversation)) return;
    conversations.put(conversation).catch((error) => console.error("the conversation could not be kept:", error));
  }
}

function titleOf(input) {
  const message = input.find((item) => item.role === "user");
  const texts = typeof message?.content === "string" ? [message.content] : (message?.content || []).map((part) => part.text || "");
  return texts.join(" ").trim().replace(/\s+/g, " ").slice(0, 80) || "Untitled";
}

/** The calls of a response that wait for the client. */
export function waitingFor(turn) {
  const output = turn.response?.output || [];
  return output.filter((item) => ["function_call", "custom_tool_call", "mcp_approval_request"].includes(item.type) && item.status !== "in_progress");
}

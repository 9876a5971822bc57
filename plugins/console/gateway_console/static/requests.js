// What runs now, and when each part of a run began and ended. Asks the gateway while it is looked at, and only then.

import { get, post } from "./api.js";
import { announce, drawn, fill, h, icon } from "./dom.js";
import { badge, facts, table, view } from "./views.js";

const INTERVAL = 2000;
const GOOD = { completed: true, failed: false };
const ENDED = new Set(["completed", "incomplete", "failed", "cancelled"]);
const NAMES = { queue: "In the queue", prompt: "Prefill", decoding: "Decoding", tool: "Tool" };
const seconds = (value) => (value === null ? "" : value < 1 ? `${(value * 1000).toFixed(0)} ms` : value < 10 ? `${value.toFixed(2)} s` : value < 120 ? `${value.toFixed(0)} s` : `${Math.floor(value / 60)} min`);

/** A line as long as the run, on which one phase is marked. */
function bar(phase, whole) {
  const at = (value) => Math.min(100, (100 * value) / (whole || 1));
  return drawn("svg", { class: "span-bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    drawn("rect", { class: "whole", x: 0, y: 3, width: 100, height: 2 }),
    drawn("rect", { class: phase.kind, x: Math.min(99.4, at(phase.began)), y: 0, width: Math.max(0.6, at(phase.seconds)), height: 8 }));
}

export function timeline(run) {
  const phases = [...run.phases].sort((one, other) => one.began - other.began);
  return [
    facts([["Request", run.request_id], ["Response", run.response_id], ["Began", new Date(run.started * 1000).toLocaleString()], ["In the queue", seconds(run.queue_seconds)],
      ["First token after", seconds(run.first_token_seconds)], ["Input", run.input_tokens === null ? null : `${run.input_tokens.toLocaleString()} tokens`],
      ["Generations", run.turns || null], ["Process", run.process], ["Error", run.error_code]]),
    phases.length ? table("Timeline", ["Phase", "After", "Takes", ""], phases.map((phase) => [phase.name ? `${NAMES[phase.kind]} ${phase.name}` : NAMES[phase.kind], seconds(phase.began), seconds(phase.seconds), bar(phase, run.seconds)])) : null,
  ];
}

/** One run. It is updated in place, so that what is open stays open and keeps the focus. */
function runCard(first) {
  const state = h("span");
  const name = h("span", { class: "card-title" });
  const counts = h("span", { class: "state" });
  const body = h("div", { class: "card-body" });
  const details = h("details", { class: "card run", ontoggle: () => draw() }, h("summary", {}, icon("down"), state, name, counts), body);
  const problem = h("p", { class: "error", role: "alert" });
  const cancel = h("button", { type: "button", class: "small", onclick: async () => {
    cancel.disabled = true;
    problem.textContent = "";
    try {
      await post(`/v1/gateway/runs/${encodeURIComponent(run.id)}/cancel`);
      announce("Cancelled"); // its line says so with the next list
    } catch (error) {
      problem.textContent = error.message;
      cancel.disabled = false;
    }
  } }, "Cancel");
  const element = h("div", { class: "run-row" }, details, cancel, problem);
  let run = null;
  const draw = () => fill(body, details.open ? timeline(run) : null);
  const update = (next) => {
    if (run && next.seconds === run.seconds) return; // it has ended
    run = next;
    cancel.hidden = ENDED.has(run.state);
    cancel.setAttribute("aria-label", `Cancel the request to ${run.model} of ${run.key || "anyone"}, begun ${new Date(run.started * 1000).toLocaleTimeString()}`);
    fill(state, badge(run.state, GOOD[run.state] ?? null));
    name.textContent = [run.model, run.api, run.key].filter(Boolean).join(" · ");
    counts.textContent = [new Date(run.started * 1000).toLocaleTimeString(), run.output_tokens ? `${run.output_tokens.toLocaleString()} tokens` : "", seconds(run.seconds)].filter(Boolean).join(" · ");
    if (details.open) draw();
  };
  update(first);
  return { element, update };
}

/** Shows `runs` in the order given; cards that are shown already are not built anew, and not moved if their place is right. */
function place(list, cards, runs) {
  runs.forEach((run, index) => {
    let card = cards.get(run.id);
    if (card) card.update(run);
    else cards.set(run.id, (card = runCard(run)));
    const before = list.children[index] ?? null;
    if (before !== card.element) list.insertBefore(card.element, before);
  });
  while (list.children.length > runs.length) list.lastElementChild.remove();
}

export function requestsView() {
  const note = h("p", { class: "hint", role: "status" }, "Loading…");
  const heading = h("h2", {}, "Running");
  const running = h("div", { class: "runs" });
  const ended = h("div", { class: "runs" });
  const body = h("div", { hidden: true }, heading, running, h("h2", {}, "Ended"), ended);
  const pause = h("button", { type: "button", class: "small", "aria-pressed": "false", onclick: () => {
    const paused = pause.getAttribute("aria-pressed") !== "true";
    pause.setAttribute("aria-pressed", String(paused));
    if (!paused) update();
  } }, "Pause");
  const cards = new Map();
  let timer = null;

  async function update() {
    clearTimeout(timer);
    if (!element.isConnected || pause.getAttribute("aria-pressed") === "true") return;
    try {
      if (!document.hidden) show(await get("/v1/gateway/runs"));
    } catch (error) {
      note.className = "error";
      note.textContent = error.message;
      if (error.status === 401 || error.status === 403) {
        body.hidden = true;
        return;
      }
    }
    clearTimeout(timer);
    timer = setTimeout(update, INTERVAL);
  }

  function show(answer) {
    const told = answer.answered < answer.workers ? `Only ${answer.answered} of ${answer.workers} worker processes have answered; requests of the others are not shown.${answer.silent?.length ? ` Did not answer: ${answer.silent.join(", ")} (process ids).` : ""}` : "";
    note.className = "hint";
    if (note.textContent !== told) note.textContent = told;
    heading.textContent = `Running (${answer.total.toLocaleString()})`;
    place(running, cards, answer.running);
    place(ended, cards, answer.ended);
    const known = new Set([...answer.running, ...answer.ended].map((run) => run.id));
    for (const id of cards.keys()) if (!known.has(id)) cards.delete(id);
    body.hidden = false;
  }

  const element = view("Requests", "What runs now, oldest first, and what has ended last, newest first, on this server; without texts. What was refused before it ran (401, 429) is in the log.",
    h("p", {}, pause), note, body);
  queueMicrotask(update); // once it is in the page
  return element;
}

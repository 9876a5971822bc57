// What runs now, and when each part of a run began and ended. Asks the gateway while it is looked at, and only then.

import { get } from "./api.js";
import { drawn, fill, h, icon } from "./dom.js";
import { badge, facts, table, view } from "./look.js";

const INTERVAL = 2000;
const GOOD = { completed: true, failed: false };
const NAMES = { queue: "In the queue", prompt: "Until the first token", decoding: "From there on", tool: "Tool" };
const seconds = (value) => (value === null ? "" : value < 1 ? `${(value * 1000).toFixed(0)} ms` : value < 10 ? `${value.toFixed(2)} s` : value < 120 ? `${value.toFixed(0)} s` : `${Math.floor(value / 60)} min`);

/** A line as long as the run, on which one phase is marked. */
function bar(phase, whole) {
  const at = (value) => Math.min(100, (100 * value) / (whole || 1));
  return drawn("svg", { class: "span-bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    drawn("rect", { class: "whole", x: 0, y: 3, width: 100, height: 2 }),
    drawn("rect", { class: phase.kind, x: Math.min(99.4, at(phase.began)), y: 0, width: Math.max(0.6, at(phase.seconds)), height: 8 }));
}

function timeline(run) {
  const phases = [...run.phases].sort((one, other) => one.began - other.began);
  return [
    facts([["Request", run.request_id], ["Response", run.response_id], ["Began", new Date(run.started * 1000).toLocaleString()], ["In the queue", seconds(run.queue_seconds)],
      ["First token after", seconds(run.first_token_seconds)], ["Input", run.input_tokens === null ? null : `${run.input_tokens.toLocaleString()} tokens`],
      ["Generations", run.turns || null], ["Error", run.error_code]]),
    phases.length ? table("Timeline", ["Phase", "After", "Takes", ""], phases.map((phase) => [phase.name ? `${NAMES[phase.kind]} ${phase.name}` : NAMES[phase.kind], seconds(phase.began), seconds(phase.seconds), bar(phase, run.seconds)])) : null,
  ];
}

/** One run. It is updated in place, so that what is open stays open and keeps the focus. */
function runCard(first) {
  const state = h("span");
  const name = h("span", { class: "card-title" });
  const counts = h("span", { class: "state" });
  const body = h("div", { class: "card-body" });
  const element = h("details", { class: "card run", ontoggle: () => draw() }, h("summary", {}, icon("down"), state, name, counts), body);
  let run = null;
  const draw = () => fill(body, element.open ? timeline(run) : null);
  const update = (next) => {
    if (run && next.seconds === run.seconds) return; // it has ended
    run = next;
    fill(state, badge(run.state, GOOD[run.state] ?? null));
    name.textContent = [run.model, run.api, run.key].filter(Boolean).join(" · ");
    counts.textContent = [run.output_tokens ? `${run.output_tokens.toLocaleString()} tokens` : "", seconds(run.seconds)].filter(Boolean).join(" · ");
    if (element.open) draw();
  };
  update(first);
  return { element, update };
}

/** Shows `runs` in the order given; cards that are shown already are not built anew, and not moved if their place is right. */
function place(list, cards, runs) {
  runs.forEach((run, index) => {
    let card = cards.get(run.number);
    if (card) card.update(run);
    else cards.set(run.number, (card = runCard(run)));
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
  let process = null;
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
    if (process !== answer.process) cards.clear(); // the numbers are those of one process
    process = answer.process;
    const told = answer.workers > 1 ? `This is one of ${answer.workers} worker processes (process ${answer.process}); each knows its own requests only.` : "";
    note.className = "hint";
    if (note.textContent !== told) note.textContent = told;
    heading.textContent = `Running (${answer.total.toLocaleString()})`;
    place(running, cards, answer.running);
    place(ended, cards, answer.ended);
    const known = new Set([...answer.running, ...answer.ended].map((run) => run.number));
    for (const number of cards.keys()) if (!known.has(number)) cards.delete(number);
    body.hidden = false;
  }

  const element = view("Requests", "What runs now, oldest first, and what has ended last, newest first; without texts. Needs an admin key, if the gateway has keys.",
    h("p", {}, pause), note, body);
  queueMicrotask(update); // once it is in the page
  return element;
}

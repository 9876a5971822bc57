// What the views are built of: a title with an introduction, tables, badges, and content that is loaded.

import { fill, h } from "./dom.js";

/** Fills an element with the nodes that `work` returns, or with its error. */
export async function shown(element, work) {
  fill(element, h("p", { class: "hint", role: "status" }, "Loading…"));
  try {
    const nodes = await work();
    fill(element, nodes);
  } catch (error) {
    fill(element, h("div", { class: "notice bad", role: "alert" }, h("p", {}, error.message)));
  }
}

export const view = (title, intro, ...children) => h("div", { class: "view" }, h("h1", {}, title), h("p", { class: "intro" }, intro), children);

export function table(label, head, rows) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, h("table", {},
    h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell) => h("td", {}, cell)))))));
}

/** Names the worker processes that did not answer the server; null if all did. */
export const silence = (ids) => (ids?.length ? h("p", { class: "hint" }, `Did not answer: worker ${ids.length > 1 ? "processes" : "process"} ${ids.join(", ")}. What ${ids.length > 1 ? "they know" : "it knows"} is missing here.`) : null);

/** `good` is true, false, or null for neither. */
export const badge = (text, good) => h("span", { class: `badge ${good === null ? "" : good ? "good" : "bad"}` }, text);
/** Names with their values; those without a value are left out. */
export const facts = (pairs) => h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== undefined && value !== null && value !== "").map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

// The tool servers of the gateway. They are asked only when the button is pressed.

import { get, post } from "./api.js";
import { announce, fill, h, icon } from "./dom.js";
import { badge, facts, shown, view } from "./views.js";

const STATES = { reachable: ["reachable", true], unreachable: ["not reachable", false], unknown: ["not asked yet", null] };

/** Names and descriptions may come from foreign servers: each keeps its writing direction to itself. */
const foreign = (text) => h("bdi", {}, text);

function toolList(server) {
  if (!server.tools.length) return null;
  const rest = server.total - server.tools.length;
  const count = `${server.total.toLocaleString()} ${server.total === 1 ? "tool" : "tools"}`;
  return h("details", { class: "card" }, h("summary", {}, icon("down"), count),
    h("div", { class: "card-body" },
      h("dl", { class: "facts tool-list" }, server.tools.map((tool) => [h("dt", { class: "mono" }, foreign(tool.name)),
        h("dd", {}, tool.needs_approval && badge("asks for approval", null), " ", tool.description && foreign(tool.description))])),
      rest > 0 && h("p", { class: "hint" }, `And ${rest.toLocaleString()} more.`)));
}

function tile(server) {
  const [state, good] = STATES[server.state] || [];
  const name = server.label === server.table ? server.label : `${server.label} (${server.table})`;
  const probed = server.probed && `${new Date(server.probed * 1000).toLocaleString()}${server.seconds === null ? "" : `, answered after ${Math.round(server.seconds * 1000).toLocaleString()} ms`}`;
  return h("section", { class: "tile" }, h("h2", {}, name, state && badge(state, good)),
    facts([["Types in requests", server.types.join(", ")], ["In every request", server.offered ? "yes" : "no"], ["Last asked", probed], ["Error", server.error && foreign(server.error)],
      ["Tools", server.state === "unknown" ? "known when the server is asked" : server.total === 0 ? "none" : null]]),
    toolList(server));
}

export function toolsView() {
  const list = h("div");
  const problem = h("p", { class: "error", role: "alert" });
  const button = h("button", { type: "button", class: "small", hidden: true, onclick: async () => {
    button.disabled = true;
    problem.textContent = "";
    announce("Asking the tool servers");
    try {
      fill(list, drawn(await post("/v1/gateway/tools/probe")));
      announce("The tool servers were asked");
    } catch (error) {
      problem.textContent = error.message;
    }
    button.disabled = false;
  } }, "Check all servers");

  function drawn(answer) {
    button.hidden = !answer.data.some((server) => server.state !== "no_probe");
    const rest = answer.total - answer.data.length;
    return [answer.data.length ? answer.data.map(tile) : h("p", { class: "hint" }, "No tools are configured."), rest > 0 && h("p", { class: "hint" }, `And ${rest.toLocaleString()} more servers.`)];
  }

  shown(list, async () => drawn(await get("/v1/gateway/tools")));
  return view("Tools", "The tools that the gateway runs, and the MCP servers of its configuration. Needs an admin key, if the gateway has keys.", h("p", {}, button), problem, list);
}

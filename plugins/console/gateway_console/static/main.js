// The page: navigation, the conversation, and the panel beside it.

import { ApiError, get, key } from "./api.js";
import { Composer } from "./composer.js";
import { announce, fill, h, icon, iconButton } from "./dom.js";
import { CodePanel, EventsPanel, tabs } from "./inspector.js";
import { configView, keysView } from "./admin.js";
import { modelsView, referenceView, serverView, storedView } from "./look.js";
import { requestsView } from "./requests.js";
import { SettingsError } from "./request.js";
import { Session } from "./session.js";
import { Settings } from "./settings.js";
import { preferences } from "./store.js";
import { Thread, textOf } from "./thread.js";
import { toolsView } from "./tools.js";

const NARROW = matchMedia("(max-width: 60rem)");
const session = new Session();
const settings = new Settings(session, () => inspector?.refresh());
const composer = new Composer({ send: (input) => ask(input, session.current?.leaf ?? null), stop });
const thread = new Thread(session, {
  again: (turn) => ask(turn.input, turn.parent),
  answer: (turn, input) => ask(input, turn.id),
  choose: (turn) => session.choose(turn),
  edited: (turn, text) => ask(replaced(turn.input, text), turn.parent),
  example: (text) => {
    composer.area.value = text;
    composer.submit();
  },
});
const code = new CodePanel(session, settings, composer);
const events = new EventsPanel(session);
let inspector = null;
inspector = tabs("Inspector", { Settings: settings, Code: code, Events: events });

function stop() {
  for (const turn of session.path()) session.stop(turn);
}

function ask(input, parent) {
  composer.say("");
  const refusal = settings.refusal(input);
  if (refusal) {
    composer.say(refusal);
    return false;
  }
  try {
    session.ask(input, parent, settings.values);
    return true;
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    composer.say(error.message);
    return false;
  }
}

/** The same message with another text; its images and files stay. */
function replaced(input, text) {
  const before = textOf(input);
  return input.map((item) => {
    if (item.role !== "user") return item;
    if (typeof item.content === "string") return { ...item, content: text };
    const rest = item.content.filter((part) => part.type !== "input_text" || !before.split("\n").length || part.text.startsWith("File "));
    return { ...item, content: [...rest, { type: "input_text", text }] };
  });
}

// The frame.

const VIEWS = { "#/": "Playground", "#/stored": "Stored", "#/models": "Models", "#/tools": "Tools", "#/requests": "Requests", "#/keys": "Keys", "#/server": "Server", "#/config": "Configuration", "#/api": "API" };
const FOR_ADMINS = new Set(["#/tools", "#/requests", "#/keys", "#/config"]);
const links = Object.entries(VIEWS).map(([address, name]) => h("a", { href: address }, name));
const history = h("ul", { class: "history" });
const deleteAll = h("div", { class: "row foot-row" }, h("button", { type: "button", class: "small", onclick: forget }, "Delete all"));
const sidebar = h("nav", { class: "sidebar", id: "sidebar", "aria-label": "Console" },
  h("div", { class: "brand" }, h("img", { src: "console/icon.svg", alt: "", width: "22", height: "22" }), "Litegate"),
  h("div", { class: "links" }, links),
  h("div", { class: "history-head" }, h("h2", {}, "Conversations"), iconButton("plus", "New conversation", fresh)),
  history,
  deleteAll);
const scroller = h("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": "Conversation" }, thread.element);
const dropping = h("div", { class: "drop", hidden: true }, "Drop images and files here");
const main = h("main", { id: "main" });
const panel = h("aside", { class: "inspector", id: "inspector", "aria-label": "Inspector" }, inspector.element);
const keyButton = iconButton("key", "API key", askKey);
const themeButton = iconButton("moon", "Switch to dark", switchTheme);
const menuButton = iconButton("menu", "Conversations and views", () => toggle("sidebar"), { "aria-controls": "sidebar" });
const panelButton = iconButton("panel", "Settings, code and events", () => toggle("inspector"), { "aria-controls": "inspector" });
const bar = h("header", { class: "bar" }, menuButton, h("div", { class: "model" }, settings.modelSelect), h("span", { class: "grow" }), keyButton, themeButton, panelButton);
const shell = h("div", { class: "shell" }, sidebar, h("div", { class: "center" }, bar, main), panel);
document.getElementById("app").append(shell);

function toggle(part, open = !shell.classList.contains(`show-${part}`)) {
  const other = part === "sidebar" ? "inspector" : "sidebar";
  shell.classList.toggle(`show-${part}`, open);
  if (NARROW.matches && open) shell.classList.remove(`show-${other}`);
  for (const [name, button] of [["sidebar", menuButton], ["inspector", panelButton]]) button.setAttribute("aria-expanded", String(shell.classList.contains(`show-${name}`)));
  if (!NARROW.matches) preferences.set(part, open);
}

function arrange() {
  toggle("sidebar", !NARROW.matches && preferences.get("sidebar", true));
  toggle("inspector", !NARROW.matches && preferences.get("inspector", true));
}

NARROW.addEventListener("change", arrange);
addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.isComposing || document.querySelector("dialog[open]")) return;
  const shown = NARROW.matches ? ["sidebar", "inspector"].filter((part) => shell.classList.contains(`show-${part}`)) : [];
  if (shown.length) shown.forEach((part) => toggle(part, false));
  else if (composer.element.isConnected) stop();
});

function playground() {
  fill(main, scroller, composer.element, dropping);
  thread.render();
  scroller.scrollTop = scroller.scrollHeight;
}

function route() {
  const [, name, id] = /^#\/([a-z]*)\/?(.*)$/.exec(location.hash) || ["", "", ""];
  const address = name ? `#/${name}` : "#/";
  for (const each of links) {
    if (each.getAttribute("href") === address) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  document.title = `${VIEWS[address] || "Playground"} · Litegate`;
  shell.classList.toggle("looking", address !== "#/");
  if (NARROW.matches) toggle("sidebar", false);
  if (name === "models") fill(main, modelsView());
  else if (name === "stored") fill(main, storedView(session, safelyDecoded(id)));
  else if (name === "api") fill(main, referenceView());
  else if (name === "requests") fill(main, requestsView());
  else if (name === "tools") fill(main, toolsView());
  else if (name === "keys") fill(main, keysView());
  else if (name === "config") fill(main, configView());
  else if (name === "server") fill(main, serverView());
  else playground();
}

function safelyDecoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

addEventListener("hashchange", route);
addEventListener("pagehide", () => session.leave());
addEventListener("pageshow", () => { session.leaving = false; });
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // fragments are views here
  if (!composer.area.isConnected) location.hash = "#/";
  setTimeout(() => composer.area.focus());
});

function fresh() {
  session.open(null);
  location.hash = "#/";
  composer.area.focus();
}

async function forget() {
  if (confirm("Delete all conversations of this browser? What the gateway has stored stays there.")) await session.clear();
}

function drawHistory() {
  deleteAll.hidden = !session.list.length;
  fill(history, session.list.slice(0, 200).map((each) => h("li", { class: each === session.current ? "current" : "" },
    h("button", { type: "button", class: "title", "aria-current": each === session.current ? "true" : null, onclick: () => { session.open(each); location.hash = "#/"; } }, each.title),
    iconButton("bin", `Delete ${each.title}`, () => session.remove(each)))));
}

session.addEventListener("change", (event) => {
  const turn = event.detail;
  const path = session.path();
  composer.busy(path.some((each) => session.running.has(each.id)));
  if (turn === null) {
    drawHistory();
    if (scroller.isConnected) thread.render();
  } else {
    thread.touch(turn);
  }
  if (inspector.chosen === "Events" || turn === null) inspector.refresh();
  if (turn === null) preferences.set("conversation", session.current?.id ?? null);
});
session.addEventListener("ended", (event) => {
  const turn = event.detail;
  announce(turn.error || turn.response?.error ? "The answer failed" : "The answer is complete");
});
session.addEventListener("unauthorized", askKey);
composer.area.addEventListener("input", () => inspector.chosen === "Code" && code.show());

// Drag and drop, over the whole page.

let depth = 0;
const files = (event) => event.dataTransfer?.types.includes("Files");
addEventListener("dragenter", (event) => {
  if (!files(event)) return;
  depth += 1;
  dropping.hidden = false;
});
addEventListener("dragleave", (event) => {
  if (!files(event)) return;
  depth = Math.max(0, depth - 1);
  dropping.hidden = depth === 0;
});
addEventListener("dragover", (event) => files(event) && event.preventDefault());
addEventListener("drop", (event) => {
  if (!files(event)) return;
  event.preventDefault();
  depth = 0;
  dropping.hidden = true;
  composer.add(event.dataTransfer.files);
});

// Dark and light.

const DARK = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => ({ dark: true, light: false })[document.documentElement.dataset.theme] ?? DARK.matches;

function drawTheme() {
  const label = isDark() ? "Switch to light" : "Switch to dark";
  fill(themeButton, icon(isDark() ? "sun" : "moon"));
  themeButton.title = label;
  themeButton.setAttribute("aria-label", label);
}

function switchTheme() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  preferences.set("theme", document.documentElement.dataset.theme);
  drawTheme();
}

const theme = preferences.get("theme", null);
if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
DARK.addEventListener("change", drawTheme);
drawTheme();

// The API key.

const keyInput = h("input", { type: "password", autocomplete: "off", spellcheck: "false", "aria-labelledby": "key-title", "aria-describedby": "key-hint" });
const keyProblem = h("p", { class: "error", role: "alert" });
const keyDialog = h("dialog", { "aria-labelledby": "key-title" }, h("form", { method: "dialog", onsubmit: useKey },
  h("h2", { id: "key-title" }, "API key"),
  h("p", { class: "hint", id: "key-hint" }, "It is kept in this tab's session storage only, and ends with the tab. A gateway without keys needs none."),
  keyInput, keyProblem,
  h("div", { class: "row end" }, h("button", { type: "button", onclick: () => keyDialog.close() }, "Close"), h("button", { type: "submit", class: "primary" }, "Use this key"))));
document.body.append(keyDialog);

function askKey() {
  keyInput.value = key.get();
  if (!keyDialog.open) keyDialog.showModal();
}

async function useKey(event) {
  event.preventDefault();
  key.set(keyInput.value.trim());
  if (await connect()) {
    keyDialog.close();
    route();
  }
}

/** See what the key may see: views that would only be refused are not offered, nor are tools that the gateway lacks. */
async function look() {
  let info = null;
  try {
    info = await get("/v1/gateway");
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.status !== 403) return;
  }
  for (const each of links) each.hidden = !info && FOR_ADMINS.has(each.getAttribute("href"));
  settings.offerTools(info && info.tools.flatMap((each) => each.types));
}

/** Read the list of models, which shows whether the key is right. */
async function connect() {
  keyProblem.textContent = "";
  try {
    settings.offer((await get("/v1/models")).data);
    await look();
    return true;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 401) {
      askKey();
      keyProblem.textContent = key.get() ? error.message : "";
    } else composer.say(error.message);
    return false;
  }
}

// `/docs` is this page, with the reference first.
if (location.pathname.endsWith("/docs")) window.history.replaceState(null, "", "./#/api");
arrange();
await session.load();
session.current = session.list.find((each) => each.id === preferences.get("conversation", null)) || null;
drawHistory();
route();
composer.restoreDraft();
await connect();
session.resume();
session.changed();
document.documentElement.dataset.ready = "true";

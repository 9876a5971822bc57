// Building the page from nodes. Text becomes text nodes; no string is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes, listeners (`onclick`) and children. Strings become text; null and false are left out. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "value") element.value = value;
    else if (name === "checked") element.checked = true;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child);
  }
  return element;
}

/** Replace what is in `element`. */
export function fill(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

const PATHS = {
  attach: "M13.5 7.5 8 13a3 3 0 0 1-4.2-4.2l6-6a2 2 0 0 1 2.9 2.8l-6 6a1 1 0 0 1-1.4-1.4l5-5",
  bin: "M3 4.5h10M6.5 4V2.8h3V4M4.5 4.5l.5 8.7h6l.5-8.7M7 7v4M9 7v4",
  close: "m4 4 8 8m0-8-8 8",
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z",
  down: "m4 6 4 4 4-4",
  edit: "m3 13 .7-3L11 2.7l2.3 2.3L6 12.3z",
  key: "M8.2 7.8 13.5 2.5M11.5 4.5l2 2M5.8 7.4a3 3 0 1 0 0 5.9 3 3 0 0 0 0-5.9z",
  left: "m10 4-4 4 4 4",
  menu: "M2.5 4h11M2.5 8h11M2.5 12h11",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
  panel: "M2.5 3h11v10h-11zM10 3v10",
  plus: "M8 3v10M3 8h10",
  retry: "M13 8a5 5 0 1 1-1.5-3.6M13 2.5v2.7h-2.7",
  right: "m6 4 4 4-4 4",
  send: "M8 13V3M3.8 7.2 8 3l4.2 4.2",
  stop: "M4.5 4.5h7v7h-7z",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M3 13l1-1M12 4l1-1",
};

/** An element of a drawing, which screen readers pass over. */
export function drawn(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return append(element, children);
}

export function icon(name) {
  return drawn("svg", { viewBox: "0 0 16 16", "aria-hidden": "true", class: "icon" }, drawn("path", { d: PATHS[name] }));
}

/** A button that shows an icon; `label` is its name for screen readers, and its tooltip. */
export function iconButton(name, label, onclick, more = {}) {
  return h("button", { type: "button", "aria-label": label, title: label, onclick, ...more, class: `quiet ${more.class || ""}` }, icon(name));
}

let counter = 0;

/** A labelled form field. */
export function field(label, control, hint = "") {
  counter += 1;
  control.id ||= `field-${counter}`;
  const described = hint && `${control.id}-hint`;
  if (hint) control.setAttribute("aria-describedby", described);
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control, hint && h("p", { class: "hint", id: described }, hint));
}

/** Links of models and tools lead to web pages and mail addresses only. Returns null for any other. */
export function safeUrl(text) {
  let url;
  try {
    url = new URL(text);
  } catch {
    return null;
  }
  return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
}

export function link(text, address) {
  const href = safeUrl(address);
  if (href === null) return document.createTextNode(text);
  return h("a", { href, target: "_blank", rel: "noopener noreferrer nofollow" }, text);
}

export function copyButton(text, label = "Copy") {
  const button = iconButton("copy", label, async () => {
    try {
      await navigator.clipboard.writeText(typeof text === "function" ? text() : text);
      announce("Copied");
      button.classList.add("done");
      setTimeout(() => button.classList.remove("done"), 1200);
    } catch {
      announce("The browser did not allow copying");
    }
  });
  return button;
}

const live = h("div", { class: "hidden", role: "status", "aria-live": "polite" });
document.body.append(live);

/** Tell screen readers something. */
export function announce(text) {
  live.textContent = text;
}

export function download(name, blob) {
  const url = URL.createObjectURL(blob);
  const anchor = h("a", { href: url, download: name });
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

export const pretty = (value) => JSON.stringify(value, null, 2);

const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]/gu;

/** `text` with escapes for characters that are not seen, or that turn the order of others around: what is approved is what is shown. */
export function visible(text) {
  return String(text).replace(UNSEEN, (found) => found.split("").map((each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`).join(""));
}

const DEEPEST = 32; // levels that are indented: deeper ones would make a short text very long
const TOKEN = /"[^"\\]*(?:\\[^][^"\\]*)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

/** `text` if it is not JSON, else the same indented. Numbers and members stay as they are written: a parsed one would lose digits and repeated names. */
export function prettyJson(text) {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  const tokens = String(text).match(TOKEN);
  let depth = 0;
  const line = () => `\n${"  ".repeat(Math.min(depth, DEEPEST))}`;
  return tokens.map((token, index) => {
    if (token === ",") return `,${line()}`;
    if (token === ":") return ": ";
    if (token === "{" || token === "[") {
      depth += 1;
      return "}]".includes(tokens[index + 1]) ? token : token + line();
    }
    if (token !== "}" && token !== "]") return token;
    depth -= 1;
    return "{[".includes(tokens[index - 1]) ? token : line() + token;
  }).join("");
}

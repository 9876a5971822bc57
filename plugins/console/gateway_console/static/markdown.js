// Markdown as DOM nodes. Everything that a model wrote becomes a text node: nothing of it is read as HTML. Images are not
// loaded, but shown as links, and links lead to http, https and mailto only. Each function takes time that is proportional to the
// length of its text.

import { copyButton, h, link, safeUrl } from "./dom.js";

const LONGEST = 50000; // characters of one block whose marks are read; a longer one is shown as it is
const DEPTH = 5;
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]{0,30})/;
const HEADING = /^ {0,3}(#{1,6})\s+([^]*)$/;
const RULE = /^ {0,3}([-*_])\s*(?:\1\s*){2,}$/;
const ITEM = /^(\s{0,12})(?:([-*+])|(\d{1,9})[.)])\s+([^]*)$/;
const TABLE_LINE = /^\|?(?:\s*:?-+:?\s*\|)*(?:\s*:?-+:?)?$/; // of a line without white space around it

/** The nodes of a whole text. */
export function markdown(text) {
  return blocks(text.split("\n"), 0);
}

/**
 * Shows a text that grows. `update` is given the whole text each time. Blocks that a blank line has ended are built once; the
 * block that is being written is built anew.
 */
export class GrowingMarkdown {
  constructor() {
    this.element = h("div", { class: "markdown" });
    this.settled = 0; // what lies before is built
    this.tail = [];
    this.text = "";
    this.scanned = 0;
    this.fence = null;
  }

  update(text, ended = false) {
    if (text === this.text && !ended) return;
    if (!text.startsWith(this.text.slice(-200), Math.max(0, this.text.length - 200))) this.reset();
    this.text = text;
    const cut = this.boundary();
    if (cut > this.settled) {
      this.drop();
      this.element.append(...markdown(text.slice(this.settled, cut)));
      this.settled = cut;
    }
    const rest = text.slice(this.settled);
    if (rest.length > LONGEST && this.long && this.element.lastChild === this.long) {
      this.long.appendData(rest.slice(this.long.length));
      return;
    }
    this.drop();
    if (rest.length > LONGEST) {
      this.long = document.createTextNode(rest);
      this.tail = [this.long];
    } else if (rest.trim()) {
      this.tail = markdown(rest);
    }
    this.element.append(...this.tail);
  }

  drop() {
    for (const node of this.tail) node.remove();
    this.tail = [];
    this.long = null;
  }

  reset() {
    this.element.replaceChildren();
    Object.assign(this, { settled: 0, tail: [], text: "", scanned: 0, fence: null, long: null });
  }

  /** The place after the last blank line outside of fenced code that a plain paragraph follows. */
  boundary() {
    let cut = this.settled;
    for (let end = this.text.indexOf("\n", this.scanned); end >= 0; end = this.text.indexOf("\n", this.scanned)) {
      const line = this.text.slice(this.scanned, Math.min(end, this.scanned + 200));
      const fence = FENCE.exec(line);
      if (fence && !this.fence) this.fence = fence[1];
      else if (fence && line.trim().startsWith(this.fence)) this.fence = null;
      this.scanned = end + 1;
      // The next line may still belong to a list: it settles what is before it only when it begins like a paragraph.
      if (!this.fence && !line.trim() && /^[A-Za-z#]/.test(this.text.slice(end + 1, end + 2))) cut = end + 1;
    }
    return cut;
  }
}

function blocks(lines, depth) {
  const nodes = [];
  let paragraph = [];
  const flush = () => {
    if (paragraph.length) nodes.push(h("p", { dir: "auto" }, inline(paragraph.join("\n"), 0)));
    paragraph = [];
  };
  const missing = new Set(); // ends of formulas that do not come again: each is looked for once
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at];
    if (line.length > LONGEST) {
      flush();
      nodes.push(h("p", {}, line));
      continue;
    }
    if (!line.trim()) {
      flush();
      continue;
    }
    let found;
    if ((found = FENCE.exec(line))) {
      flush();
      const code = [];
      const mark = found[1];
      for (at += 1; at < lines.length && !(lines[at].trim().startsWith(mark) && !lines[at].trim().slice(mark.length).trim()); at += 1) code.push(lines[at]);
      nodes.push(codeBlock(code.join("\n"), found[2]));
    } else if ((found = HEADING.exec(line))) {
      flush();
      // The page has headings of its own: an answer's begin below them.
      nodes.push(h(`h${Math.min(6, found[1].length + 2)}`, { dir: "auto" }, inline(found[2].replace(/\s#+\s*$/, ""), 0)));
    } else if (!missing.has((found = FORMULAS[line.trim()])) && found) {
      // A formula in lines of its own: shown as it was written.
      const end = lines.findIndex((each, index) => index > at && each.trim() === found);
      if (end < 0) {
        missing.add(found);
        paragraph.push(line);
        continue;
      }
      flush();
      nodes.push(h("div", { class: "math", dir: "ltr" }, lines.slice(at, end + 1).join("\n")));
      at = end;
    } else if (RULE.test(line)) {
      flush();
      nodes.push(h("hr"));
    } else if (/^ {0,3}>/.test(line) && depth < DEPTH) {
      flush();
      const quoted = [];
      for (; at < lines.length && /^ {0,3}>/.test(lines[at]); at += 1) quoted.push(lines[at].replace(/^ {0,3}> ?/, ""));
      at -= 1;
      nodes.push(h("blockquote", { dir: "auto" }, blocks(quoted, depth + 1)));
    } else if (ITEM.test(line) && depth < DEPTH) {
      flush();
      const taken = list(lines, at, depth);
      nodes.push(taken.node);
      at = taken.end - 1;
    } else if (line.includes("|") && at + 1 < lines.length && lines[at + 1].length < 2000 && lines[at + 1].includes("-") && TABLE_LINE.test(lines[at + 1].trim())) {
      flush();
      const rows = [cells(line)];
      const sides = cells(lines[at + 1]).map(sideOf);
      for (at += 2; at < lines.length && lines[at].includes("|"); at += 1) rows.push(cells(lines[at]));
      at -= 1;
      nodes.push(table(rows, sides));
    } else {
      paragraph.push(line);
    }
  }
  flush();
  return nodes;
}

function list(lines, from, depth) {
  const first = ITEM.exec(lines[from]);
  const ordered = first[3] !== undefined;
  const indent = first[1].length;
  const node = h(ordered ? "ol" : "ul", ordered && first[3] !== "1" ? { start: first[3], dir: "auto" } : { dir: "auto" });
  let own = null;
  const close = () => own && node.append(item(own, depth));
  let at = from;
  for (; at < lines.length; at += 1) {
    const line = lines[at];
    const found = line.length <= LONGEST ? ITEM.exec(line) : null;
    if (found && found[1].length <= indent + 1) {
      if (found[1].length < indent || (found[3] !== undefined) !== ordered) break;
      close();
      own = [found[4]];
    } else if (!line.trim()) {
      const next = lines[at + 1];
      if (next === undefined || !(/^\s{2,}\S/.test(next) || ITEM.test(next.slice(0, 200)))) break;
      own.push("");
    } else if (found || /^\s{2,}/.test(line) || own[own.length - 1] !== "") {
      if (!found && !/^\s/.test(line) && (FENCE.test(line) || HEADING.test(line) || line.startsWith(">"))) break;
      own.push(line.slice(Math.min(/^\s*/.exec(line)[0].length, indent + (ordered ? 3 : 2))));
    } else break;
  }
  close();
  return { node, end: at };
}

/** An item of a list. One that begins with `[ ]` or `[x]` is a task. */
function item(lines, depth) {
  const task = /^\[([ xX])\][ \t]/.exec(lines[0].slice(0, 4));
  if (!task) return h("li", {}, tight(blocks(lines, depth + 1)));
  const done = task[1] !== " ";
  return h("li", { class: "task" }, h("input", { type: "checkbox", disabled: true, checked: done, "aria-label": done ? "Done" : "To do" }), " ",
    tight(blocks([lines[0].slice(4), ...lines.slice(1)], depth + 1)));
}

/** The only paragraph of a list's item is shown without its margins. */
function tight(nodes) {
  return nodes.length && nodes[0].tagName === "P" ? [...nodes[0].childNodes, ...nodes.slice(1)] : nodes;
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());

/** The class of a column, from its cell of the line below the head: `:-:` is centred, `-:` at the end. */
const sideOf = (cell) => (!cell.endsWith(":") ? null : cell.startsWith(":") && cell.length > 1 ? "middle" : "end");

function table([head, ...rows], sides) {
  const row = (tag, values) => h("tr", {}, head.map((_, index) => h(tag, { dir: "auto", class: sides[index] || null }, inline(values[index] || "", 0))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table" },
    h("table", {}, h("thead", {}, row("th", head)), h("tbody", {}, rows.map((values) => row("td", values)))));
}

export function codeBlock(code, language = "") {
  return h("div", { class: "code", dir: "ltr" },
    h("div", { class: "code-head" }, h("span", {}, language || "text"), copyButton(code, "Copy code")),
    h("pre", { tabindex: "0" }, h("code", {}, code)));
}

const MARKS = ["**", "__", "~~", "*", "_"];
const TAGS = { "**": "strong", __: "strong", "~~": "del", "*": "em", _: "em" };
const SPECIAL = /[\\`*_~[!<h$\n]/g;
const FORMULAS = { "\\[": "\\]", "$$": "$$" }; // of lines that have nothing else, with the lines that end them

function inline(text, depth) {
  if (text.length > LONGEST || depth > DEPTH) return [text];
  const nodes = [];
  const missing = new Set(); // marks that do not come again: each is looked for once
  let from = 0;
  let at = 0;
  const push = (node, end) => {
    if (at > from) nodes.push(text.slice(from, at));
    nodes.push(node);
    from = at = end;
  };
  const find = (mark, start) => {
    if (missing.has(mark)) return -1;
    const found = text.indexOf(mark, start);
    if (found < 0) missing.add(mark);
    return found;
  };
  while (at < text.length) {
    SPECIAL.lastIndex = at;
    const next = SPECIAL.exec(text);
    if (!next) break;
    at = next.index;
    const char = text[at];
    let found;
    if (char === "\n") {
      push(/ {2}$/.test(text.slice(from, at)) ? h("br") : "\n", at + 1);
    } else if ((found = formula(text, at, find))) {
      push(h("span", { class: "math", dir: "ltr" }, text.slice(at, found)), found);
    } else if (char === "\\" && /[\\`*_{}[\]()#+\-.!~|<>]/.test(text[at + 1] || "")) {
      push(text[at + 1], at + 2);
    } else if (char === "`") {
      const run = /^`+/.exec(text.slice(at, at + 20))[0];
      const end = find(run, at + run.length);
      if (end > 0) push(h("code", {}, text.slice(at + run.length, end).trim()), end + run.length);
      else at += run.length;
    } else if (char === "[" || (char === "!" && text[at + 1] === "[")) {
      found = bracketed(text, at + (char === "!" ? 2 : 1));
      if (found) push(anchor(found, depth, char === "!"), found.end);
      else at += 1;
    } else if (char === "<" || char === "h") {
      found = address(text, at);
      if (found) push(link(found.url, found.url), found.end);
      else at += 1;
    } else {
      const mark = MARKS.find((each) => text.startsWith(each, at));
      const word = (index) => /[\p{L}\p{N}]/u.test(text[index] || "");
      const opens = mark && /\S/.test(text[at + mark.length] || " ") && !(mark.includes("_") && word(at - 1));
      const end = opens ? find(mark, at + mark.length + 1) : -1;
      if (end > 0 && /\S/.test(text[end - 1]) && !(mark.includes("_") && word(end + mark.length))) {
        push(h(TAGS[mark], {}, inline(text.slice(at + mark.length, end), depth + 1)), end + mark.length);
      } else at += mark ? mark.length : 1;
    }
  }
  if (from < text.length) nodes.push(text.slice(from));
  return nodes;
}

/**
 * The end of a formula of TeX that begins at `at`, between `\\(` and `\\)`, `\\[` and `\\]`, `$$`, or `$`; null if none does. A formula is
 * shown as it was written. Between single dollar signs are no white space at the ends, no line break, and no digit follows: amounts of
 * money are none.
 */
function formula(text, at, find) {
  const mark = text.slice(at, at + 2);
  const closing = { "\\(": "\\)", "\\[": "\\]", "$$": "$$" }[mark];
  if (closing) {
    const end = find(closing, at + 2);
    return end > at + 2 ? end + 2 : null;
  }
  if (text[at] !== "$" || !/\S/.test(text[at + 1] || " ")) return null;
  const near = text.slice(at + 1, at + 500);
  const end = near.search(/[$\n]/);
  return end > 0 && near[end] === "$" && /\S/.test(near[end - 1]) && !/[\d$]/.test(near[end + 1] || "") ? at + end + 2 : null;
}

/** `text](address)`, with a text and an address of bounded length. */
function bracketed(text, start) {
  const near = text.slice(start, start + 1000);
  const middle = near.indexOf("](");
  if (middle < 0 || near.slice(0, middle).includes("\n\n")) return null;
  const after = text.slice(start + middle + 2, start + middle + 2 + 4000);
  const close = after.search(/[)\n]/);
  if (close < 0 || after[close] === "\n") return null;
  return { label: near.slice(0, middle), url: after.slice(0, close).trim().split(/\s/)[0], end: start + middle + 2 + close + 1 };
}

function anchor(found, depth, image) {
  const label = image ? `Image: ${found.label || found.url}` : found.label;
  if (safeUrl(found.url) === null) return h("span", { class: "dead", title: "This address is not a web page" }, label || found.url.slice(0, 200));
  const node = link("", found.url);
  node.append(...(image ? [label] : inline(label || found.url, depth + 1)));
  return node;
}

function address(text, at) {
  const near = text.slice(at, at + 2000);
  const angled = /^<((?:https?:\/\/|mailto:)[^\s<>]+)>/.exec(near);
  if (angled) return { url: angled[1], end: at + angled[0].length };
  const bare = /^https?:\/\/[^\s<>"'`]+/.exec(near);
  if (!bare) return null;
  const url = bare[0].replace(/[.,;:!?*_~)\]]+$/, "");
  return url.length > 8 ? { url, end: at + url.length } : null;
}

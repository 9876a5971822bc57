// Markdown as DOM nodes. markdown-it reads the text; its tokens become elements here, so that no string is ever read as HTML. Images are
// not loaded, but shown as links, and links lead to http, https and mailto only.

import { codeBlock, growCode } from "./code.js";
import { h, link, safeUrl } from "./dom.js";
import { addFormulas, FORMULA_BUDGET, formula } from "./formulas.js";
import { MarkdownIt } from "./vendor.js";

const LONGEST = 50000; // characters of one paragraph or cell whose marks are read; a longer one is shown as it is
const DEEPEST = 20; // levels of the parser: ten lists in one another, or twenty quotations

const parser = new MarkdownIt({ html: false, linkify: true });
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
parser.linkify.add("//", null).add("ftp:", null).add("mailto:", null);
parser.validateLink = () => true; // addresses are checked where the element is made
parser.block.ruler.before("table", "too_deep", tooDeep);
parser.core.ruler.at("inline", readInline);
addFormulas(parser);

/** Takes the lines of a block that is nested too deeply as one paragraph. */
function tooDeep(state, from, end, silent) {
  if (state.level < DEEPEST || silent) return false;
  let line = from + 1;
  while (line < end && (state.isEmpty(line) || state.sCount[line] >= state.blkIndent)) line += 1;
  state.line = line;
  state.push("paragraph_open", "p", 1).map = [from, line];
  Object.assign(state.push("inline", "", 0), { content: state.getLines(from, line, state.blkIndent, false).trim(), map: [from, line], children: [] });
  state.push("paragraph_close", "p", -1);
  return true;
}

function readInline(state) {
  for (const token of state.tokens) {
    if (token.type !== "inline") continue;
    if (token.content.length > LONGEST) token.type = "text";
    else parser.inline.parse(token.content, parser, state.env, token.children);
  }
}

/** The nodes of a whole text. */
export function markdown(text) {
  return read(text, FORMULA_BUDGET).blocks.map((block) => block.node);
}

/**
 * Reads `text`. Returns its outermost blocks, each with its first line and what it leaves of `budget`; whether it defines addresses of links; and the
 * first line of a formula that has not ended.
 */
function read(text, budget) {
  const env = {};
  const tokens = parser.parse(text, env);
  return { blocks: new Builder(budget).build(tokens), defines: Boolean(env.references), unclosed: env.unclosed ?? Infinity };
}

/** Makes elements of tokens. */
class Builder {
  constructor(budget) {
    this.budget = budget;
    this.open = []; // elements that have begun
    this.blocks = [];
  }

  build(tokens) {
    tokens.forEach((token, index) => {
      if (token.level === 0 && token.nesting >= 0) this.blocks.push({ node: null, line: token.map[0], left: 0 });
      this.add(token, tokens, index);
      if (this.blocks.length) this.blocks.at(-1).left = this.budget;
    });
    return this.blocks;
  }

  add(token, tokens, index) {
    if (token.nesting > 0) this.begin(token, tokens, index);
    else if (token.nesting < 0) this.open.pop();
    else if (token.type === "inline") token.children.forEach((child) => this.add(child));
    else this.put(this.leaf(token));
  }

  put(node) {
    if (this.open.length) this.open.at(-1).append(node);
    else this.blocks.at(-1).node = node;
  }

  /** Opens the element of a token. A paragraph of a tight list has none of its own. */
  begin(token, tokens, index) {
    if (token.hidden) {
      this.open.push(this.open.at(-1));
      return;
    }
    const element = opened(token);
    this.put(token.type === "table_open" ? h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table" }, element) : element);
    this.open.push(element);
    if (token.type === "list_item_open") makeTask(element, tokens[index + 2]);
  }

  leaf(token) {
    switch (token.type) {
      case "softbreak": return "\n";
      case "hardbreak": return h("br");
      case "hr": return h("hr");
      case "code_inline": return h("code", {}, token.content);
      case "code_block": return codeBlock(token.content.replace(/\n$/, ""));
      case "fence": return codeBlock(token.content.replace(/\n$/, ""), token.info.trim().split(/\s/)[0].slice(0, 30));
      case "image": return imageLink(token);
      case "math": case "math_block": return this.formula(token);
      default: return token.content;
    }
  }

  formula(token) {
    this.budget -= token.content.length + 30;
    return formula(token, this.budget > 0);
  }
}

const SIDES = { "text-align:right": "end", "text-align:center": "middle" };

/** An empty element for a token that opens one. */
function opened(token) {
  switch (token.type) {
    case "link_open": return anchor(token);
    // The page has headings of its own: an answer's begin below them.
    case "heading_open": return h(`h${Math.min(6, Number(token.tag[1]) + 2)}`, { dir: "auto" });
    case "ordered_list_open": return h("ol", { dir: "auto", start: token.attrGet("start") });
    case "bullet_list_open": case "paragraph_open": case "blockquote_open": return h(token.tag, { dir: "auto" });
    case "th_open": case "td_open": return h(token.tag, { dir: "auto", class: SIDES[token.attrGet("style")] });
    case "s_open": return h("del");
    default: return h(token.tag);
  }
}

function anchor(token) {
  const address = token.attrGet("href");
  if (safeUrl(address) !== null) return link("", address);
  return h("span", token.markup === "" || token.markup === "linkify" ? { class: "dead", title: "This address is not a web page" } : {});
}

function imageLink(token) {
  const address = token.attrGet("src");
  const label = `Image: ${token.content || address.slice(0, 200)}`;
  return safeUrl(address) === null ? h("span", { class: "dead", title: "This address is not a web page" }, label) : link(label, address);
}

/** Shows a box in an item of a list that begins with `[ ]` or `[x]`. */
function makeTask(element, token) {
  const first = token?.type === "inline" ? token.children[0] : null;
  const task = first?.type === "text" ? /^\[([ xX])\][ \t]/.exec(first.content) : null;
  if (!task) return;
  const done = task[1] !== " ";
  first.content = first.content.slice(4);
  element.className = "task";
  element.append(h("input", { type: "checkbox", disabled: true, checked: done, "aria-label": done ? "Done" : "To do" }), " ");
}

/**
 * Shows a text that grows. `update` is given the whole text each time. Blocks that another block follows stay as they are; only the last one is
 * read again.
 */
export class GrowingMarkdown {
  constructor() {
    this.element = h("div", { class: "markdown" });
    this.reset();
  }

  reset() {
    this.element.replaceChildren();
    this.text = "";
    this.ended = false;
    this.settled = 0; // what lies before stays as it is
    this.tail = []; // the nodes of what lies behind
    this.budget = FORMULA_BUDGET;
    this.defines = false;
  }

  update(text, ended = false) {
    if (text === this.text && ended === this.ended) return;
    if (!text.startsWith(this.text.slice(-200), Math.max(0, this.text.length - 200))) this.reset();
    if (ended && this.defines) this.reset(); // an address may be defined after the links that use it
    this.text = text;
    this.ended = ended;
    const rest = text.slice(this.settled);
    const { blocks, defines, unclosed } = read(rest, this.budget);
    this.defines ||= defines;
    this.draw(blocks.map((block) => block.node));
    this.settle(rest, blocks, unclosed);
  }

  draw(nodes) {
    if (this.tail.length === 1 && nodes.length && growCode(this.tail[0], nodes[0])) {
      this.element.append(...nodes.slice(1));
      this.tail.push(...nodes.slice(1));
      return;
    }
    for (const node of this.tail) node.remove();
    this.element.append(...nodes);
    this.tail = nodes;
  }

  /**
   * Keeps all blocks before the last, if that has begun with a line that is complete: a line of a list may first look like another block. A formula that
   * has not ended, with what looks like blocks in it, is not kept either.
   */
  settle(rest, blocks, unclosed) {
    const ends = [...rest.matchAll(/\r\n?|\n/g)];
    const last = blocks.findLastIndex((block) => block.line < ends.length && block.line <= unclosed);
    if (last < 1) return;
    const end = ends[blocks[last].line - 1];
    this.settled += end.index + end[0].length;
    this.budget = blocks[last - 1].left;
    this.tail = this.tail.slice(last);
  }
}

// Formulas of TeX: where they are in a text, and how KaTeX shows them.

import { h } from "./dom.js";
import { katex } from "./vendor.js";

/** What the formulas of one text may cost: each costs its length and 30. Further ones are shown as they were written. */
export const FORMULA_BUDGET = 30000;

const LONGEST = 4000; // characters of a formula
const MOST_LINES = 200; // of a formula in lines of its own
const MOST_NODES = 20000;
const TALLEST = 100; // em
const DEEPEST = 30; // groups in one another: KaTeX takes cubic time
const DEFINITION = /\\(?:[egx]?def|(?:future)?let|(?:re)?newcommand|providecommand|global|long)\b/; // a short formula could become a very long one
const CLOSING = { "\\(": "\\)", "\\[": "\\]", "$$": "$$" };
const OPTIONS = { throwOnError: true, strict: false, trust: false, maxSize: 20, maxExpand: 200 };

/** Adds rules for `$…$`, `$$…$$`, `\(…\)` and `\[…\]`, whose tokens are `math` and `math_block`. */
export function addFormulas(parser) {
  parser.inline.ruler.before("escape", "math", inlineRule);
  parser.block.ruler.before("fence", "math_block", blockRule, { alt: ["paragraph", "reference", "blockquote", "list"] });
}

function inlineRule(state, silent) {
  const { src, pos } = state;
  const end = src[pos] === "$" || src[pos] === "\\" ? formulaEnd(state, src.slice(pos, pos + 2)) : -1;
  if (end < 0) return false;
  if (!silent) push(state, "math", src.slice(pos, end));
  state.pos = end;
  return true;
}

/**
 * The end of the formula at the parser's position; -1 if none begins there. Between single dollar signs are no white space at the ends, no line
 * break, and no digit follows: amounts of money are none.
 */
function formulaEnd(state, mark) {
  const { src, pos, posMax } = state;
  if (Object.hasOwn(CLOSING, mark)) {
    const end = next(state, src, CLOSING[mark], pos + 2);
    return end > pos + 2 && end + 2 <= posMax ? end + 2 : -1;
  }
  if (mark[0] !== "$" || !/\S/.test(mark[1] || " ")) return -1;
  const near = src.slice(pos + 1, Math.min(posMax, pos + 500));
  const end = near.search(/(?<!\\)[$\n]/);
  const found = end > 0 && near[end] === "$" && /\S/.test(near[end - 1]) && !/[\d$]/.test(src[pos + end + 2] || "");
  return found ? pos + end + 2 : -1;
}

/**
 * A formula that begins and ends at the ends of lines, within the block that contains it. `env.unclosed` becomes the first line of one that may go on
 * behind the text.
 */
function blockRule(state, from, end, silent) {
  const begin = state.bMarks[from] + state.tShift[from];
  const mark = state.src.slice(begin, begin + 2);
  if ((mark !== "$$" && mark !== "\\[") || state.sCount[from] - state.blkIndent >= 4) return false;
  const close = next(state.env, state.src, CLOSING[mark], begin + 2);
  if (close < 0) {
    if (state.lineMax - from < MOST_LINES) state.env.unclosed ??= from;
    return false;
  }
  let line = from;
  for (; state.eMarks[line] < close; line += 1) {
    if (line + 1 >= Math.min(end, from + MOST_LINES)) return false;
    if (!state.isEmpty(line + 1) && state.sCount[line + 1] < state.blkIndent) return false;
  }
  if (state.src.slice(close + 2, state.eMarks[line]).trim() || close < state.bMarks[line]) return false;
  if (silent) return true;
  push(state, "math_block", state.getLines(from, line + 1, state.sCount[from], false).trim()).map = [from, line + 1];
  state.line = line + 1;
  return true;
}

/** `src.indexOf(mark, from)`. The last answer is kept in `memory`: texts with many openings and few ends are searched once. */
function next(memory, src, mark, from) {
  memory.formulaEnds ||= new Map();
  const known = memory.formulaEnds.get(mark);
  if (known && known.from <= from && (known.found < 0 || from <= known.found)) return known.found;
  const found = src.indexOf(mark, from);
  memory.formulaEnds.set(mark, { from, found });
  return found;
}

function push(state, type, written) {
  const token = state.push(type, "", 0);
  token.content = written;
  token.markup = written[0] === "$" && written[1] !== "$" ? "$" : written.slice(0, 2);
  return token;
}

/** An element that shows a formula: as it was written until KaTeX is there, and if it cannot read it or `affordable` is false. */
export function formula({ type, content, markup }, affordable) {
  const display = markup === "$$" || markup === "\\[";
  const attributes = display ? { class: "math display", dir: "ltr", tabindex: "0" } : { class: "math", dir: "ltr" };
  const element = h(type === "math_block" ? "div" : "span", attributes, content);
  const tex = content.slice(markup.length, -markup.length).trim();
  if (!affordable || !tex || content.length > LONGEST) return element;
  if (katex.ready) draw(katex.ready, element, tex, display);
  else katex.load().then((library) => library && draw(library, element, tex, display));
  return element;
}

function draw(library, element, tex, display) {
  if (DEFINITION.test(tex) || nesting(tex) > DEEPEST) return;
  try {
    const tree = library.__renderToDomTree(tex, { ...OPTIONS, displayMode: display });
    prepare(tree, { left: MOST_NODES });
    element.replaceChildren(tree.toNode());
    element.classList.add("drawn");
  } catch {
    // No TeX, or too large: it stays as it was written.
  }
}

/** How deep groups and environments are in one another. */
function nesting(tex) {
  let depth = 0;
  let deepest = 0;
  for (const [mark] of tex.matchAll(/\\(?:left|begin)\b|\\(?:right|end)\b|\\[^]|[{}]/g)) {
    if (mark === "{" || mark === "\\left" || mark === "\\begin") depth += 1;
    else if (mark === "}" || mark === "\\right" || mark === "\\end") depth -= 1;
    deepest = Math.max(deepest, depth);
  }
  return deepest;
}

/**
 * Has the nodes of KaTeX's tree set their `style` attributes by way of `style.cssText`: the page's policy refuses style attributes. Raises
 * `RangeError` if there are more than `budget.left` nodes, or one is too tall.
 */
function prepare(node, budget) {
  budget.left -= 1;
  if (budget.left < 0 || Math.abs(node.height || 0) + Math.abs(node.depth || 0) > TALLEST) throw new RangeError("too large");
  if (node.attributes?.style) {
    const { style, ...others } = node.attributes;
    const toNode = node.toNode;
    node.attributes = others;
    node.toNode = () => {
      const made = toNode.call(node);
      made.style.cssText = style;
      return made;
    };
  }
  node.children?.forEach((child) => prepare(child, budget));
}

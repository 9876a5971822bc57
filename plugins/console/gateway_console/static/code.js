// Blocks of code, in the colours of highlight.js.

import { copyButton, h } from "./dom.js";
import { highlighter } from "./vendor.js";

const LONGEST = 20000; // characters of a block that is coloured: some grammars take quadratic time
const UNCOLOURED = new Set(["", "text", "txt", "plain", "plaintext", "output"]);

/** Code with a button to copy it. Its colours may come later, with the library. */
export function codeBlock(code, language = "") {
  const text = h("code", {}, code);
  colour(text, code, language.toLowerCase());
  return h("div", { class: "code", dir: "ltr" },
    h("div", { class: "code-head" }, h("span", {}, language || "text"), copyButton(() => text.textContent, "Copy code")),
    h("pre", { tabindex: "0" }, text));
}

/** Shows in the block `old` what is in `fresh`: what is scrolled or focused in it stays so. Returns false if one of them is no code. */
export function growCode(old, fresh) {
  if (!highlighter.ready || !old.classList.contains("code") || !fresh.classList?.contains("code")) return false;
  old.querySelector(".code-head span").replaceWith(fresh.querySelector(".code-head span"));
  old.querySelector("code").replaceChildren(...fresh.querySelector("code").childNodes);
  return true;
}

function colour(element, code, language) {
  if (UNCOLOURED.has(language) || code.length > LONGEST) return;
  const draw = (library) => {
    if (library?.getLanguage(language)) element.replaceChildren(...spans(library.highlight(code, { language, ignoreIllegals: true })._emitter.rootNode));
  };
  if (highlighter.ready) draw(highlighter.ready);
  else highlighter.load().then(draw);
}

/** The nodes of highlight.js's tree, which has texts, and objects with a scope such as `title.function` and children. */
function spans(node) {
  return node.children.map((child) => (typeof child === "string" ? child : h("span", { class: `hljs-${child.scope.split(/[.:]/)[0]}` }, spans(child))));
}

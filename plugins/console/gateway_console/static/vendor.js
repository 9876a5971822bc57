// The libraries of the page, in vendor/. What not every answer needs is loaded when it is needed.

import MarkdownIt from "./vendor/markdown-it-15.0.3/markdown-it.esm.min.mjs";

export { MarkdownIt };

/** A library that is loaded on demand. `ready` is null until it is there; `load()` resolves to null if it cannot be loaded. */
class Lazy {
  constructor(start) {
    this.start = start;
    this.ready = null;
    this.loading = null;
  }

  load() {
    this.loading ??= this.start().then((library) => { this.ready = library; return library; }, () => { this.loading = null; return null; });
    return this.loading;
  }
}

export const katex = new Lazy(async () => {
  // Not a module: it sets a global.
  await Promise.all([import("./vendor/katex-0.19.1/katex.min.js"), stylesheet("vendor/katex-0.19.1/katex.min.css")]);
  return globalThis.katex;
});

export const highlighter = new Lazy(async () => (await import("./vendor/highlight.js-11.12.0/highlight.min.js")).default);

function stylesheet(path) {
  return new Promise((resolve, reject) => {
    const link = document.createElement("link");
    Object.assign(link, { rel: "stylesheet", href: new URL(path, import.meta.url).href, onload: resolve, onerror: reject });
    document.head.append(link);
  });
}

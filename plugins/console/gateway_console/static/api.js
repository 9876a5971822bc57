// The gateway's public API, with the key of the one who uses the page.

import { stored } from "./store.js";

/** Where the gateway is, without a slash at the end: below a path, if a proxy has it there. */
export const ROOT = new URL("..", import.meta.url).href.slice(0, -1);

const KEY = stored("litegate.key");

/** The API key lives in this tab only: session storage ends with it. */
export const key = {
  get: () => sessionStorage.getItem(KEY) || "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

export class ApiError extends Error {
  constructor(message, { status = 0, code = null, param = null, type = null } = {}) {
    super(message);
    Object.assign(this, { status, code, param, type });
  }
}

function headers(more = {}) {
  return key.get() ? { ...more, authorization: `Bearer ${key.get()}` } : more;
}

async function checked(path, options) {
  let answer;
  try {
    answer = await fetch(ROOT + path, { ...options, credentials: "omit", cache: "no-store", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The gateway cannot be reached. Is it still running?");
  }
  if (answer.ok) return answer;
  const text = await answer.text();
  let error = {};
  try {
    error = JSON.parse(text).error || {};
  } catch {
    // Something between the page and the gateway answered.
  }
  throw new ApiError(error.message || `The server answered with status ${answer.status}.`, { ...error, status: answer.status });
}

export async function get(path, signal) {
  return (await checked(path, { headers: headers(), signal })).json();
}

export async function getBlob(path) {
  return (await checked(path, { headers: headers() })).blob();
}

export async function post(path, body = undefined, signal = undefined) {
  const sent = body === undefined ? { headers: headers() } : { headers: headers({ "content-type": "application/json" }), body: JSON.stringify(body) };
  return (await checked(path, { method: "POST", ...sent, signal })).json();
}

export async function remove(path) {
  return (await checked(path, { method: "DELETE", headers: headers() })).json();
}

/** The events of `POST /v1/responses` with `stream: true`. */
export async function* streamed(body, signal) {
  const options = { method: "POST", headers: headers({ "content-type": "application/json" }), body: JSON.stringify(body), signal };
  yield* events(await checked("/v1/responses", options));
}

/** The events of a background response after the one with the number `after`. */
export async function* resumed(id, after, signal) {
  const from = after === null ? "" : `&starting_after=${after}`;
  yield* events(await checked(`/v1/responses/${encodeURIComponent(id)}?stream=true${from}`, { headers: headers(), signal }));
}

async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      // Only the new piece is searched for the end of a line: a line may be long.
      let rest = value;
      for (let end = rest.indexOf("\n"); end >= 0; end = rest.indexOf("\n")) {
        held.push(rest.slice(0, end));
        rest = rest.slice(end + 1);
        const line = held.join("").replace(/\r$/, "");
        held = [];
        if (!line.startsWith("data:")) continue;
        const data = line.slice(5).trim();
        if (data && data !== "[DONE]") yield JSON.parse(data);
      }
      if (rest) held.push(rest);
    }
  } catch (error) {
    if (error.name === "AbortError" || error instanceof ApiError) throw error;
    throw new ApiError("The connection to the gateway broke off.", { code: "connection_lost" });
  } finally {
    reader.cancel().catch(() => {});
  }
}

// The reference of the API, from /openapi.json. Schemas are drawn when they are opened.

import { get } from "./api.js";
import { append, fill, h, icon } from "./dom.js";

const PREFIX = "#/components/schemas/";

/** A text of the document, whose Markdown is no more than marks of code. */
const unquoted = (text) => (text || "").replaceAll("`", "");

/** Draws into `body`. */
export async function reference(body, filter) {
  const described = await get("/openapi.json");
  const groups = new Map();
  for (const [path, methods] of Object.entries(described.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const tag = operation.tags?.[0] || "gateway";
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push({ method: method.toUpperCase(), path, operation });
    }
  }
  // Responses first, then what is below /v1, then the rest.
  const rank = ([, [{ path }]]) => (path.startsWith("/v1/responses") ? 0 : path.startsWith("/v1/") ? 1 : 2);
  const ordered = [...groups].sort((one, other) => rank(one) - rank(other));
  const draw = (wanted) => {
    const shown = ordered.map(([tag, operations]) => [tag, operations.filter(({ method, path, operation }) => `${method} ${path} ${operation.summary}`.toLowerCase().includes(wanted))]);
    fill(body, shown.filter(([, operations]) => operations.length).map(([tag, operations]) => h("section", { class: "group" }, h("h2", {}, tag),
      operations.map((each) => operationView(each, described)))));
    if (!body.firstChild) append(body, [h("p", { class: "hint" }, "No operation has these words.")]);
  };
  filter.addEventListener("input", () => draw(filter.value.trim().toLowerCase()));
  draw(filter.value.trim().toLowerCase());
}

/** A `details` whose content is made when it is first opened. */
function lazy(attributes, summary, make) {
  let made = false;
  const details = h("details", { ...attributes, ontoggle: () => {
    if (details.open && !made) append(details, [make()]);
    made ||= details.open;
  } }, h("summary", {}, icon("down"), summary));
  return details;
}

function operationView({ method, path, operation }, described) {
  const title = [h("span", { class: `method ${method.toLowerCase()}` }, method), h("span", { class: "mono path" }, path), h("span", { class: "soft" }, unquoted(operation.summary))];
  return lazy({ class: "card operation" }, title, () => h("div", { class: "card-body" },
    operation.description && h("p", {}, unquoted(operation.description)),
    operation.security && h("p", { class: "hint" }, "Needs an API key: Authorization: Bearer …"),
    operation.parameters && [h("div", { class: "label" }, "Parameters"), operation.parameters.map((each) => fieldView(each.name, each.schema, each.required, `${each.in}${each.description ? ` — ${each.description}` : ""}`, described))],
    operation.requestBody && contentView("Request", operation.requestBody.content, described),
    Object.entries(operation.responses).map(([status, answer]) => (status === "200" ? contentView("Answer", answer.content || {}, described) : null)),
    h("p", { class: "hint" }, `Errors: ${Object.entries(operation.responses).filter(([status]) => status !== "200").map(([status, answer]) => `${status} — ${unquoted(answer.description)}`).join(" ")}`)));
}

function contentView(title, content, described) {
  return Object.entries(content).map(([type, { schema }]) => [h("div", { class: "label" }, `${title} · ${type}`), schemaView(schema, described)]);
}

function resolved(schema, described) {
  return schema.$ref ? described.components.schemas[schema.$ref.slice(PREFIX.length)] : schema;
}

/** What a schema is, in one line. */
function nameOf(schema) {
  if (schema.$ref) return schema.$ref.slice(PREFIX.length);
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  const several = schema.anyOf || schema.oneOf;
  if (several) return several.length > 6 ? `one of ${several.length} types` : several.map(nameOf).join(" | ");
  if (schema.type === "array") return `list of ${schema.items ? nameOf(schema.items) : "any"}`;
  const bounds = ["minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern"].filter((name) => schema[name] !== undefined && !(Math.abs(schema[name]) > Number.MAX_SAFE_INTEGER)).map((name) => `${name} ${schema[name]}`);
  return [[].concat(schema.type || "any").join(" | "), ...bounds].join(", ");
}

/** The schemas with fields that a schema leads to. */
function inner(schema, described) {
  if (schema.$ref) return [schema];
  const several = schema.anyOf || schema.oneOf;
  if (several) return several.flatMap((each) => inner(each, described));
  if (schema.type === "array" && schema.items) return inner(schema.items, described);
  return schema.properties ? [schema] : [];
}

function schemaView(schema, described) {
  const found = inner(schema, described);
  if (found.length === 1) return fieldsView(resolved(found[0], described), described);
  return h("div", {}, h("p", { class: "mono" }, nameOf(schema)), found.map((each) => lazy({ class: "nested" }, h("span", { class: "mono" }, nameOf(each)), () => fieldsView(resolved(each, described), described))));
}

function fieldsView(schema, described) {
  if (!schema.properties) return schema.anyOf || schema.oneOf ? schemaView(schema, described) : h("p", { class: "mono" }, nameOf(schema));
  const needed = new Set(schema.required || []);
  return h("div", { class: "fields" }, schema.description && h("p", { class: "hint" }, unquoted(schema.description)),
    Object.entries(schema.properties).map(([name, each]) => fieldView(name, each, needed.has(name), each.description || "", described)));
}

function fieldView(name, schema, required, text, described) {
  const line = [h("span", { class: "mono name" }, name), h("span", { class: "mono soft" }, nameOf(schema).slice(0, 160)), required && h("span", { class: "needed" }, "required"), text && h("span", { class: "soft" }, unquoted(text))];
  const found = inner(schema, described);
  if (!found.length) return h("div", { class: "leaf" }, line);
  return lazy({ class: "nested" }, line, () => (found.length === 1 ? fieldsView(resolved(found[0], described), described) : schemaView(schema, described)));
}

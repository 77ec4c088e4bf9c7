// API documentation page, built from /openapi.json. Requests use a token that stays in this page.

const byId = (id) => document.getElementById(id);

function element(name, options = {}, ...children) {
  const made = Object.assign(document.createElement(name), options);
  made.append(...children);
  return made;
}

let description = {};

// Text whose parts between backticks are code.
function withCode(text) {
  return text.split("`").map((part, index) => (index % 2 ? element("code", { textContent: part }) : part));
}

function resolve(schema) {
  if (!schema || !schema.$ref) return schema || {};
  return description.components.schemas[schema.$ref.split("/").pop()];
}

// An example body: the required fields, each in its simplest form.
function example(schema, depth = 0) {
  const known = resolve(schema);
  if (known.default !== undefined && known.default !== null) return known.default;
  if (known.enum) return known.enum[0];
  if (known.anyOf) return example(known.anyOf[0], depth);
  if (known.type === "object") {
    const found = {};
    for (const name of depth > 3 ? [] : known.required || []) found[name] = example(known.properties[name], depth + 1);
    return found;
  }
  if (known.type === "array" || known.prefixItems) {
    return known.minItems ? (known.prefixItems || [known.items]).map((item) => example(item, depth + 1)) : [];
  }
  if (known.type === "integer" || known.type === "number") return known.minimum > 0 ? known.minimum : 0;
  if (known.type === "boolean") return false;
  return known.format === "date-time" ? new Date().toISOString() : "example";
}

function typeOf(schema) {
  const known = resolve(schema);
  const choices = known.anyOf ? known.anyOf.map(typeOf).join(" or ") : known.title || known.format || known.type || "any";
  return known.enum ? known.enum.join(" | ") : choices;
}

function fields(schema) {
  const known = resolve(schema);
  const rows = Object.entries(known.properties || {}).map(([name, of]) =>
    element("li", {}, element("code", { textContent: name }),
      ` ${typeOf(of)}${(known.required || []).includes(name) ? ", required" : ""}. ${of.description || ""}`));
  return element("details", {}, element("summary", { textContent: `Fields of ${known.title || "the body"}` }),
    element("ul", {}, ...rows));
}

async function headers(method, hasBody) {
  const found = {};
  if (hasBody) found["Content-Type"] = "application/json";
  const token = byId("token").value.trim();
  if (token) found.Authorization = `Bearer ${token}`;
  else if (method !== "GET") {
    // Logged in by cookie: changes need the CSRF token of the session.
    const me = await fetch("v1/me");
    if (me.ok) found["X-CSRF-Token"] = (await me.json()).csrf_token || "";
  }
  return found;
}

function url(path, inputs) {
  const query = new URLSearchParams();
  let found = path.slice(1); // relative to this page, which may be below a path of a proxy
  for (const { of, input } of inputs) {
    const value = input.value;
    if (of.in === "path") found = found.replace(`{${of.name}}`, encodeURIComponent(value));
    else if (of.in === "query" && value !== "") {
      const many = of.schema.type === "array" ? value.split(",").map((each) => each.trim()) : [value];
      for (const each of many) query.append(of.name, each);
    }
  }
  return query.size ? `${found}?${query}` : found;
}

async function send(method, path, inputs, body, output) {
  const options = { method, headers: await headers(method, body !== null) };
  for (const { of, input } of inputs) if (of.in === "header" && input.value) options.headers[of.name] = input.value;
  if (body !== null) options.body = body;
  const start = performance.now();
  try {
    const response = await fetch(url(path, inputs), options);
    const text = await response.text();
    let shown = text;
    // Indented as text, not parsed and re-encoded, which would change large numbers.
    try { shown = text.length < 200000 && text ? indent(text) : text; } catch { /* not JSON: shown unchanged */ }
    const took = `${Math.round(performance.now() - start)} ms`;
    output.replaceChildren(
      element("p", { className: response.ok ? "good" : "bad", textContent: `${response.status} ${response.statusText} · ${took}` }),
      element("pre", { textContent: shown }));
  } catch (error) {
    output.replaceChildren(element("p", { className: "bad", textContent: String(error) }));
  }
}

function indent(text) {
  JSON.parse(text);
  let depth = 0;
  return text.replace(/"(?:[^"\\]|\\.)*"|[{}\[\],:]/g, (part) => {
    if (part === "{" || part === "[") return `${part}\n${"  ".repeat(++depth)}`;
    if (part === "}" || part === "]") return `\n${"  ".repeat(--depth)}${part}`;
    if (part === ",") return `,\n${"  ".repeat(depth)}`;
    return part === ":" ? ": " : part;
  }).replace(/([{\[])\s+([}\]])/g, "$1$2");
}

function route(method, path, operation) {
  const inputs = (operation.parameters || []).map((of) => {
    const input = element("input", { placeholder: `${of.in} · ${typeOf(of.schema)}`, required: of.required });
    input.setAttribute("aria-label", of.name);
    return { of, input };
  });
  const wanted = operation.requestBody?.content["application/json"]?.schema;
  const body = wanted ? element("textarea", { value: JSON.stringify(example(wanted), null, 2), spellcheck: false }) : null;
  body?.setAttribute("aria-label", "Body");
  const output = element("div", {});
  output.setAttribute("aria-live", "polite");
  const streams = Boolean(operation.responses["200"]?.content?.["text/event-stream"]);
  const note = streams ? "A stream: open it with curl -N." : operation.requestBody && !wanted ? "A form: send it from the login page." : "";
  const button = element("button", { textContent: "Send", type: "submit" });
  const form = element("form", {},
    ...inputs.map(({ of, input }) => element("div", { className: "field" }, element("code", { textContent: of.name }), input)),
    ...(body ? [fields(wanted), body] : []),
    note ? element("p", { textContent: note }) : button, output);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(method, path, inputs, body ? body.value : null, output);
  });
  const permission = operation["x-permission"] ? `permission: ${operation["x-permission"]}` : "no token needed";
  const whole = element("details", { id: operation.operationId },
    element("summary", {},
      element("span", { className: `method ${method}`, textContent: method }),
      element("span", { className: "path", textContent: path }),
      element("span", { textContent: operation.summary }),
      element("small", { className: "permission", textContent: permission })),
    element("div", { className: "inside" }, form));
  whole.dataset.words = `${method} ${path} ${operation.summary}`.toLowerCase();
  return whole;
}

function show() {
  byId("version").textContent = description.info.version;
  byId("about").replaceChildren(...withCode(description.info.description));
  const sections = description.tags.map(({ name }) => {
    const found = Object.entries(description.paths).flatMap(([path, operations]) =>
      Object.entries(operations).filter(([, operation]) => operation.tags.includes(name))
        .map(([method, operation]) => route(method.toUpperCase(), path, operation)));
    return element("section", {}, element("h2", { textContent: name }), ...found);
  });
  byId("routes").replaceChildren(...sections);
  byId("routes").setAttribute("aria-busy", "false");
  if (location.hash) byId(location.hash.slice(1))?.setAttribute("open", "");
}

byId("search").addEventListener("input", (event) => {
  const words = event.target.value.toLowerCase().split(/\s+/);
  for (const section of document.querySelectorAll("#routes section")) {
    const routes = [...section.querySelectorAll(":scope > details")];
    for (const each of routes) each.hidden = !words.every((word) => each.dataset.words.includes(word));
    section.hidden = routes.every((each) => each.hidden);
  }
});

byId("token").addEventListener("change", async () => {
  const response = await fetch("v1/me", { headers: await headers("GET", false) });
  const me = response.ok ? await response.json() : null;
  byId("who").textContent = me ? `Token ${me.name}, role ${me.role}.` : "The token is wrong, revoked or expired.";
  byId("who").className = me ? "good" : "bad";
});

try {
  const response = await fetch("openapi.json");
  description = await response.json();
  show();
} catch (error) {
  byId("routes").replaceChildren(element("p", { className: "bad", textContent: `Cannot read /openapi.json: ${error}` }));
}

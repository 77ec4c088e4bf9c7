// Addresses of the pages, after the # so that they work under any path prefix: #/jobs?state=FAILED

/** @typedef {{page: string, name: string | null, params: URLSearchParams}} Location */

/** @type {(location: Location) => void} */
let onChange = () => {};

/** @returns {Location} */
export function current() {
	const [path = "", search = ""] = split(location.hash.slice(1));
	const [page, name] = path.replace(/^\//, "").split("/");
	return {page: page || "overview", name: name ? decode(name) : null, params: new URLSearchParams(search)};
}

/** @param {string} text */
function split(text) {
	const at = text.indexOf("?");
	return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

/** @param {string} text */
function decode(text) {
	try {
		return decodeURIComponent(text);
	} catch {
		return text;
	}
}

/**
 * The address of a page.
 * @param {string} page
 * @param {string | null} [name]
 * @param {Record<string, string | number | null | undefined | readonly string[]> | URLSearchParams} [params]
 */
export function link(page, name, params) {
	const search = params instanceof URLSearchParams ? params : new URLSearchParams();
	if (params && !(params instanceof URLSearchParams)) {
		for (const [key, value] of Object.entries(params)) {
			if (value === null || value === undefined || value === "") continue;
			for (const each of Array.isArray(value) ? value : [value]) search.append(key, String(each));
		}
	}
	const text = search.toString();
	return `#/${page === "overview" ? "" : page}${name ? `/${encodeURIComponent(name)}` : ""}${text ? `?${text}` : ""}`;
}

/** @param {string} address */
export function go(address) {
	location.hash = address;
}

/** @param {(location: Location) => void} listener */
export function start(listener) {
	onChange = listener;
	addEventListener("hashchange", () => listener(current()));
	listener(current());
}

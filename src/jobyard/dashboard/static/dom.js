// Elements as data, and a renderer that changes only what differs: focus, selection and scroll positions stay.
// Text reaches the page as text nodes and attributes alone, so nothing of a job can become markup.

/** @typedef {{tag: string, key: string | undefined, props: Record<string, any>, children: Child[], isSvg: boolean}} VNode */
/** @typedef {VNode | string} Child */
/** @typedef {Child | number | bigint | boolean | null | undefined | readonly Content[]} Content */

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set("svg g path rect line circle text tspan title use".split(" "));
const PROPERTIES = new Set(["value", "checked", "disabled", "selected", "open", "indeterminate"]);
// Control and bidirectional characters could hide or reorder what a name says.
// eslint-disable-next-line no-control-regex
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;
const LONE_SURROGATE = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** @type {WeakMap<Node, VNode>} */
const rendered = new WeakMap();

/**
 * Text in which control and bidirectional characters are shown as escapes.
 * @param {unknown} value
 */
export function visible(value) {
	const escape = (/** @type {string} */ c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`;
	return String(value).replace(HIDDEN, escape).replace(LONE_SURROGATE, escape);
}

/**
 * An element. `key` identifies it among its siblings; `mount` receives the element once, when it is created; with
 * `opaque` its children are left alone.
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...Content} children
 * @returns {VNode}
 */
export function h(tag, props, ...children) {
	const {key, ...rest} = props ?? {};
	/** @type {Child[]} */
	const flat = [];
	flatten(children, flat);
	return {tag, key: key === undefined || key === null ? undefined : String(key), props: rest, children: flat, isSvg: SVG_TAGS.has(tag)};
}

/**
 * @param {readonly Content[]} from
 * @param {Child[]} into
 */
function flatten(from, into) {
	for (const child of from) {
		if (child === null || child === undefined || typeof child === "boolean") continue;
		if (Array.isArray(child)) flatten(child, into);
		else if (typeof child === "object") into.push(/** @type {VNode} */ (child));
		else {
			const text = visible(child);
			const last = into.length - 1;
			if (typeof into[last] === "string") into[last] += text;
			else into.push(text);
		}
	}
}

/**
 * The width inside the padding of an element, which pictures are drawn at; 0 without one in the page.
 * @param {Element | null} element
 */
export function contentWidth(element) {
	if (!element?.isConnected) return 0;
	const {paddingLeft, paddingRight} = getComputedStyle(element);
	return Math.max(0, element.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight));
}

/**
 * Make the children of an element equal to these.
 * @param {Element} parent
 * @param {...Content} children
 */
export function render(parent, ...children) {
	/** @type {Child[]} */
	const flat = [];
	flatten(children, flat);
	patchChildren(parent, flat);
}

/**
 * @param {Element} parent
 * @param {Child[]} next
 */
function patchChildren(parent, next) {
	const keys = new Set(next.map((each) => (typeof each === "string" ? undefined : each.key)));
	/** @type {Map<string, Element>} */
	const kept = new Map();
	for (const node of [...parent.childNodes]) {
		const key = rendered.get(node)?.key;
		if (key === undefined) continue;
		if (keys.has(key)) kept.set(key, /** @type {Element} */ (node));
		else node.remove();
	}
	/** @type {ChildNode | null} */
	let at = parent.firstChild;
	for (const child of next) {
		if (typeof child === "string") {
			if (at instanceof Text) {
				if (at.data !== child) at.data = child;
				at = at.nextSibling;
			} else parent.insertBefore(document.createTextNode(child), at);
			continue;
		}
		const same = child.key === undefined ? reusable(at, child) : kept.get(child.key);
		if (same && rendered.get(same)?.tag === child.tag) {
			if (same === at) at = at.nextSibling;
			else move(parent, same, at);
			patch(same, child);
		} else parent.insertBefore(create(child), at);
	}
	while (at) {
		const following = at.nextSibling;
		at.remove();
		at = following;
	}
}

/**
 * @param {Element} parent
 * @param {Element} node
 * @param {ChildNode | null} before
 */
function move(parent, node, before) {
	const mover = /** @type {{moveBefore?: (node: Node, before: Node | null) => void}} */ (/** @type {unknown} */ (parent));
	// Unlike insertBefore, it keeps the focus.
	if (mover.moveBefore && node.isConnected) mover.moveBefore(node, before);
	else parent.insertBefore(node, before);
}

/**
 * @param {ChildNode | null} node
 * @param {VNode} child
 * @returns {Element | undefined}
 */
function reusable(node, child) {
	const old = node && rendered.get(node);
	return old && old.key === undefined && old.tag === child.tag ? /** @type {Element} */ (node) : undefined;
}

/** @param {VNode} vnode */
function create(vnode) {
	const element = vnode.isSvg ? document.createElementNS(SVG, vnode.tag) : document.createElement(vnode.tag);
	rendered.set(element, {...vnode, props: {}});
	patch(element, vnode);
	vnode.props.mount?.(element);
	return element;
}

/**
 * @param {Element} element
 * @param {VNode} vnode
 */
function patch(element, vnode) {
	const old = rendered.get(element)?.props ?? {};
	rendered.set(element, vnode);
	// Children first: the value of a select needs its options.
	if (!vnode.props.opaque) patchChildren(element, vnode.children);
	for (const name of Object.keys(old)) if (!(name in vnode.props)) setProperty(element, name, undefined, old[name]);
	for (const [name, value] of Object.entries(vnode.props)) setProperty(element, name, value, old[name]);
}

/**
 * @param {Element} element
 * @param {string} name
 * @param {any} value
 * @param {any} old
 */
function setProperty(element, name, value, old) {
	if (name === "mount" || name === "opaque") return;
	if (name.startsWith("on")) {
		listen(element, name.slice(2), value);
	} else if (PROPERTIES.has(name)) {
		const target = /** @type {any} */ (element);
		const wanted = value ?? (name === "value" ? "" : false);
		// A field is changed only when the page wants another value: what is being typed stays. New options of a
		// select may have moved its choice.
		if ((value !== old || element instanceof HTMLSelectElement) && target[name] !== wanted) target[name] = wanted;
	} else if (value !== old || !element.hasAttribute(name)) {
		if (value === undefined || value === null || value === false) element.removeAttribute(name);
		else element.setAttribute(name, checked(name, value === true ? "" : visible(value)));
	}
}

/** @type {WeakMap<Element, Record<string, ((event: any) => void) | undefined>>} */
const listeners = new WeakMap();

/**
 * @param {Element} element
 * @param {string} type
 * @param {((event: any) => void) | undefined} listener
 */
function listen(element, type, listener) {
	const own = listeners.get(element) ?? {};
	listeners.set(element, own);
	if (!(type in own)) element.addEventListener(type, (event) => own[type]?.(event));
	own[type] = listener;
}

/**
 * Links stay on this server, or are those of GitHub; styles come from the style sheets alone.
 * @param {string} name
 * @param {string} value
 */
function checked(name, value) {
	if (name === "style") throw new TypeError("a style attribute");
	if (name === "href" && !/^(#|[a-z]+(\.[a-z]+)?(\?|$)|https:\/\/)/.test(value)) throw new TypeError(`the link ${value}`);
	return value;
}

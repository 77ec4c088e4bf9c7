// JSON with exact integers: those beyond 2^53 become BigInt, and go back as they came.

// Random, so that no string of a payload can pass for a number.
const MARK = `${crypto.getRandomValues(new Uint32Array(2)).join("-")}:`;
const LONG = /\d{16}/;
// Whole numbers: the digits after a point are not an integer.
const STRING_OR_NUMBER = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const LONG_INTEGER = /^-?\d{16,}$/;

/**
 * @param {string} text
 * @returns {any}
 */
export function parse(text) {
	if (!LONG.test(text)) return JSON.parse(text);
	const marked = text.replace(STRING_OR_NUMBER, (found) => (LONG_INTEGER.test(found) ? `"${MARK}${found}"` : found));
	return JSON.parse(marked, (_, value) =>
		typeof value === "string" && value.startsWith(MARK) ? exact(value.slice(MARK.length)) : value,
	);
}

/** @param {string} digits */
function exact(digits) {
	const number = Number(digits);
	return Number.isSafeInteger(number) ? number : BigInt(digits);
}

/**
 * @param {unknown} value
 * @param {number} [indent]
 */
export function stringify(value, indent) {
	const text = JSON.stringify(value, (_, each) => (typeof each === "bigint" ? MARK + each : each), indent);
	return text === undefined ? "null" : text.replace(new RegExp(`"${MARK}(-?\\d+)"`, "g"), "$1");
}

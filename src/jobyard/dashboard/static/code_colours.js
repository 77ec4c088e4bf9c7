// Colours of source code: comments, texts, numbers and keywords, by one pattern for all languages.

import {h} from "./dom.js";

const KEYWORDS = "and|as|async|await|bool|break|case|catch|char|class|const|continue|def|default|do|double|elif|else|enum|except|export|extends|false|finally|float|fn|for|from|func|function|go|if|impl|import|in|int|interface|is|lambda|let|long|loop|match|mut|new|nil|None|not|null|or|package|pass|pub|raise|return|self|static|struct|switch|this|throw|trait|True|False|true|try|type|use|using|var|void|while|with|yield|include";
const WITH_HASH = /^(python|ruby|bash|sh|perl|r)/;

/** @param {string} source @param {string} language */
export function coloured(source, language) {
	const comment = WITH_HASH.test(language) ? "#[^\\n]*" : "\\/\\/[^\\n]*|\\/\\*[\\s\\S]*?\\*\\/";
	const pattern = new RegExp(`(${comment})|("(?:[^"\\\\\\n]|\\\\.)*"|'(?:[^'\\\\\\n]|\\\\.)*')|\\b(\\d[\\d_.]*)\\b|\\b(${KEYWORDS})\\b`, "g");
	const parts = [];
	let at = 0;
	for (const match of source.matchAll(pattern)) {
		if (match.index > at) parts.push(source.slice(at, match.index));
		parts.push(h("span", {class: match[1] ? "faint" : match[2] ? "text" : match[3] ? "literal" : "key"}, match[0]));
		at = match.index + match[0].length;
	}
	parts.push(source.slice(at));
	return parts;
}

// Line icons of 16 pixels.

import {h} from "./dom.js";

const PATHS = {
	brand: "M2 4h5M10 4h4M2 8h9M14 8h.1M2 12h2M7 12h7",
	overview: "M2.5 7.5 8 3l5.5 4.5V13h-11z",
	queues: "M2.5 4h11M2.5 8h7.5M2.5 12h4",
	jobs: "M3 3h10v10H3zM5.5 8.2l1.8 1.8 3.2-4",
	"dead-letters": "M8 2.5 14 13H2zM8 6.5v3M8 11.2v.2",
	schedules: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM8 5v3.2l2 1.3",
	workflows: "M2 2.5h4v4H2zM10 2.5h4v4h-4zM6 9.5h4v4H6zM4 6.5v1.5h8V6.5M8 8v1.5",
	runners: "M2.5 3h11v7h-11zM5.5 13h5M8 10v3",
	code: "M5.5 4.5 2 8l3.5 3.5M10.5 4.5 14 8l-3.5 3.5",
	workers: "M4 4h8v8H4zM6.5 1.5V4M9.5 1.5V4M6.5 12v2.5M9.5 12v2.5M1.5 6.5H4M1.5 9.5H4M12 6.5h2.5M12 9.5h2.5",
	settings: "M2 5h7M12.5 5H14M2 11h1.5M7 11h7M9 5a1.75 1.75 0 1 0 3.5 0A1.75 1.75 0 1 0 9 5M3.5 11A1.75 1.75 0 1 0 7 11a1.75 1.75 0 1 0-3.5 0",
	more: "M3 8h.1M8 8h.1M13 8h.1",
	search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.4 10.4 14 14",
	theme: "M8 2.5a5.5 5.5 0 1 0 0 11zM8 2.5a5.5 5.5 0 0 1 0 11",
	copy: "M5.5 5.5h8v8h-8zM3.5 10.5h-1v-8h8v1",
	edit: "M3 13l.7-3L11 2.7 13.3 5 6 12.3z",
	play: "M5 3.5v9L12.5 8z",
	pause: "M5.5 3.5v9M10.5 3.5v9",
	close: "M4 4l8 8M12 4l-8 8",
	retry: "M12.8 9A5 5 0 1 1 12 5M12.5 2v3.2H9.3",
};

/** @typedef {keyof typeof PATHS} IconName */

/** @param {IconName} name */
export function icon(name) {
	return h("svg", {class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true", key: `icon-${name}`}, h("path", {d: PATHS[name]}));
}

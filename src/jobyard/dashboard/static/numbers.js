// Numbers, durations and sizes in words.

const GROUPED = new Intl.NumberFormat("en-US", {maximumFractionDigits: 0});

/** @param {number | bigint | null | undefined} value */
export function count(value) {
	return value === null || value === undefined ? "–" : GROUPED.format(value);
}

/**
 * A count that may be a lower bound: "100k+".
 * @param {number | null | undefined} value
 * @param {boolean} [isCapped]
 */
export function capped(value, isCapped = false) {
	if (value === null || value === undefined) return "–";
	if (!isCapped) return count(value);
	if (value >= 1_000_000) return `${Math.floor(value / 1_000_000)}M+`;
	return value >= 1000 ? `${Math.floor(value / 1000)}k+` : `${value}+`;
}

/**
 * "1 job", "2 jobs".
 * @param {number} value
 * @param {string} noun
 * @param {string} [plural]
 */
export function counted(value, noun, plural = `${noun}s`) {
	return `${count(value)} ${value === 1 ? noun : plural}`;
}

/** @param {number | null | undefined} value a share between 0 and 1 */
export function percent(value) {
	if (value === null || value === undefined || Number.isNaN(value)) return "–";
	const hundredths = value * 100;
	return `${hundredths === 0 || hundredths >= 10 ? Math.round(hundredths) : hundredths.toFixed(hundredths < 1 ? 2 : 1)} %`;
}

/**
 * A measured time: "45 ms", "0.82 s", "41 s", "1m 42s".
 * @param {number | null | undefined} seconds
 */
export function duration(seconds) {
	if (seconds === null || seconds === undefined) return "–";
	if (seconds < 0.0995) return `${seconds * 1000 < 10 ? trim((seconds * 1000).toFixed(1)) : Math.round(seconds * 1000)} ms`;
	if (seconds < 0.995) return `${seconds.toFixed(2)} s`;
	if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
	return span(seconds);
}

/**
 * A duration in whole units, as for ages: "8 s", "1m 42s", "6h 06m", "3 days".
 * @param {number} seconds
 */
export function span(seconds) {
	const whole = Math.max(0, Math.round(seconds));
	if (whole < 60) return `${whole} s`;
	if (whole < 3600) return `${Math.floor(whole / 60)}m ${pad(whole % 60)}s`;
	if (whole < 24 * 3600) return `${Math.floor(whole / 3600)}h ${pad(Math.floor((whole % 3600) / 60))}m`;
	if (whole < 48 * 3600) return `${Math.floor(whole / 3600)} h`;
	return `${Math.floor(whole / 86400)} days`;
}

/** @param {number | null | undefined} bytes */
export function size(bytes) {
	if (bytes === null || bytes === undefined) return "–";
	if (bytes < 1024) return `${bytes} bytes`;
	const units = ["KB", "MB", "GB", "TB"];
	let value = bytes / 1024;
	let unit = 0;
	while (value >= 1024 && unit < units.length - 1) {
		value /= 1024;
		unit += 1;
	}
	return `${value >= 100 || Number.isInteger(value) ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** @param {number} value */
export function pad(value) {
	return String(value).padStart(2, "0");
}

/** @param {string} text */
function trim(text) {
	return text.replace(/\.0$/, "");
}

/** All jobs that wait, due or not: as many as the list of them has. @param {{waiting?: number | null, delayed?: number | null}} of */
export function allWaiting(of) {
	return (of.waiting ?? 0) + (of.delayed ?? 0);
}

/** How many of them are due. @param {{waiting?: number | null, delayed?: number | null}} of */
export function dueWords(of) {
	if (!allWaiting(of)) return "nothing waits";
	return of.delayed ? `${count(of.waiting)} due now` : "all of them are due";
}

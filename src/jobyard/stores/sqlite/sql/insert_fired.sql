-- in: schedule, tick, job id. Its rowcount says whether this was the first.
INSERT OR IGNORE INTO jobyard_fired VALUES (?, ?, ?)

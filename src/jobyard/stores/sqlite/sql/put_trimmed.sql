-- in: name, the last number that was trimmed.
INSERT OR REPLACE INTO jobyard_trimmed VALUES (?, ?)

-- in: tag, sequence.
INSERT OR IGNORE INTO jobyard_tag VALUES (?, ?)

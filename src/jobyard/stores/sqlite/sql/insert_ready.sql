-- in: queue, group, urgency, sequence.
INSERT INTO jobyard_ready VALUES (?, ?, ?, ?)

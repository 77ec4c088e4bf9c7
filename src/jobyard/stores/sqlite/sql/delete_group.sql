-- in: queue, name. A group with nothing left to remember leaves no row behind.
DELETE FROM jobyard_group WHERE queue = ? AND name = ?

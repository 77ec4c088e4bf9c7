-- in: tag, sequence.
DELETE FROM jobyard_tag WHERE tag = ? AND sequence = ?

-- in: sequence, what, highest number to drop.
DELETE FROM jobyard_extra WHERE sequence = ? AND what = ? AND number <= ?

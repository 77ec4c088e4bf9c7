-- in: sequence, what, number.
DELETE FROM jobyard_extra WHERE sequence = ? AND what = ? AND number = ?

-- in: sequence. out: tags.
SELECT tags FROM jobyard_job WHERE sequence = ?

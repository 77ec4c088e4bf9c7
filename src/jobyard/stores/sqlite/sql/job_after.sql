-- in: sequence. out: used, signal.
SELECT used, signal, priority FROM jobyard_job WHERE sequence = ?

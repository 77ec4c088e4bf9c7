-- in: the table's qualified name. out: whether it exists.
SELECT to_regclass($1) IS NOT NULL

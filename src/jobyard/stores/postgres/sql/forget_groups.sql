-- in: queue, how many to look at. out: whether there are more to look at.
SELECT {schema}.jobyard_forget_groups($1, $2)

-- out: the server's clock in milliseconds.
SELECT {schema}.jobyard_now($1)

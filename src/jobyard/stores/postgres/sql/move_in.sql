-- A dump that was restored elsewhere: transactions are numbered anew there, so a cursor over them says nothing.
SELECT {schema}.jobyard_move_in()

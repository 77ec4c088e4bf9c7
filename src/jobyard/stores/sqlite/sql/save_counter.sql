-- in: sequence, turn, finish, revision.
UPDATE jobyard_counter SET sequence = ?, turn = ?, finish = ?, revision = ?

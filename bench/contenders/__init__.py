"""One file per contender; each offers `CONTENDER`."""

"""What programs try against a sandbox, as data, and the play that shows that none of it gets anywhere."""

"""The use cases: submit, queries, commands, schedules, tokens, audit; `protocol.Operations` names them all."""

"""The commands, one module per command or group.

To add a command, write `commands/<name>.py` and list it in COMMANDS; a subcommand of a group goes to SUBCOMMANDS, or is
declared in the module of its group.
"""

from __future__ import annotations

from jobyard.cli.commands import (
    bench,
    check,
    config,
    cron,
    cron_edit,
    cron_import,
    dead,
    doctor,
    enqueue,
    explain,
    groups,
    job_actions,
    jobs,
    limits,
    migrate,
    queues,
    run,
    running,
    sandbox,
    sandboxd,
    scheduler,
    server,
    tokens,
    top,
    worker,
)

COMMANDS = (
    server.up,
    server.server,
    worker.worker,
    scheduler.scheduler,
    enqueue.enqueue,
    jobs.jobs,
    queues.queues,
    groups.groups,
    limits.limits,
    explain.explain,
    dead.dead,
    cron.cron,
    running.running,
    running.workers,
    top.top,
    tokens.tokens,
    run.run,
    sandbox.sandbox,
    sandboxd.sandboxd,
    check.check,
    config.config,
    doctor.doctor,
    migrate.migrate,
    bench.bench,
)
SUBCOMMANDS = {jobs.jobs: job_actions.commands, cron.cron: (cron_edit.add, cron_edit.edit, cron_import.import_table)}

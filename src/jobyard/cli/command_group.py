"""Groups of commands that name the command which a person probably meant."""

from __future__ import annotations

import click

from jobyard.errors import did_you_mean

LIST = {"list", "ls"}
# Words that other tools use for the same thing.
SAME = (
    {"retry", "redrive", "requeue"},
    {"remove", "delete", "rm", "revoke"},
    {"create", "add", "new"},
    LIST,
    {"show", "get", "info"},
)


class CommandGroup(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise click.UsageError(f'No such command "{args[0]}".{self.hint(ctx, args[0])}', error.ctx) from None

    def hint(self, ctx: click.Context, word: str) -> str:
        names = self.list_commands(ctx)
        if word in LIST and self.invoke_without_command and not LIST.intersection(names):
            return f" `{ctx.command_path}` without a subcommand lists them."
        same = sorted(name for words in SAME if word in words for name in words.intersection(names))
        return f' Did you mean "{same[0]}"?' if same else did_you_mean(word, names)

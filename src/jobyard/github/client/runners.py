"""Runners and runner groups."""

from __future__ import annotations

from collections.abc import Sequence

from jobyard.domain.runners.github_job import RunnerScope
from jobyard.github.api import JitConfig, RegisteredRunner, RunnerGroup, RunnerRemoval
from jobyard.github.client.connection import Endpoints, dig, number, scope_names, scope_path, text, texts
from jobyard.github.client.session import PER_PAGE, Item
from jobyard.github.errors import GitHubRejected, GitHubUnavailable, RunnerNameTaken

READS = 3  # of a list that changes while it is read


class GitHubRunnerEndpoints(Endpoints):
    async def generate_jitconfig(
        self, scope: RunnerScope, name: str, group_id: int, labels: Sequence[str], work_folder: str = "_work"
    ) -> JitConfig:
        body = {"name": name, "runner_group_id": group_id, "labels": list(labels), "work_folder": work_folder}
        path = scope_path(scope) + "/runners/generate-jitconfig"
        try:
            found = await self._connection.session(scope.owner).send_item("POST", path, scope_names(scope), body)
        except GitHubRejected as error:
            if error.status != 409:
                raise
            raise RunnerNameTaken(str(error)) from error
        runner_id, encoded = number(dig(found, "runner", "id")), text(found.get("encoded_jit_config"))
        if runner_id is None or not encoded:
            raise GitHubUnavailable(f"GitHub's response contains no configuration for runner {name}. It may exist.")
        return JitConfig(runner_id, name, encoded)

    async def runners(self, scope: RunnerScope) -> list[RegisteredRunner]:
        async with self._connection.listing(f"the runners of {scope}"):
            return await self._list_runners(scope, "{?per_page}", per_page=PER_PAGE)

    async def runner_by_name(self, scope: RunnerScope, name: str) -> RegisteredRunner | None:
        async with self._connection.listing(f"runner {name} of {scope}"):
            found = await self._list_runners(scope, "{?name,per_page}", name=name, per_page=PER_PAGE)
        # A server that does not know the filter returns all.
        return next((runner for runner in found if runner.name.casefold() == name.casefold()), None)

    async def runner(self, scope: RunnerScope, runner_id: int) -> RegisteredRunner | None:
        path = scope_path(scope) + "/runners/{id}"
        try:
            found = await self._connection.session(scope.owner).get_item(path, scope_names(scope, id=runner_id))
        except GitHubRejected as error:
            if error.status == 404:
                return None
            raise
        return _runner(found)

    async def remove_runner(self, scope: RunnerScope, runner_id: int) -> RunnerRemoval:
        path = scope_path(scope) + "/runners/{id}"
        try:
            await self._connection.session(scope.owner).send("DELETE", path, scope_names(scope, id=runner_id))
        except GitHubRejected as error:
            match error.status:
                case 404:
                    return RunnerRemoval.ABSENT
                case 422:
                    return RunnerRemoval.BUSY
            raise
        return RunnerRemoval.REMOVED

    async def runner_groups(self, org: str, visible_to: str | None = None) -> list[RunnerGroup]:
        path = "/orgs/{owner}/actions/runner-groups{?visible_to_repository,per_page}"
        names: dict[str, str | int] = {"owner": org, "per_page": PER_PAGE}
        if visible_to is not None:
            names["visible_to_repository"] = visible_to
        async with self._connection.listing(f"the runner groups of {org}"):
            found = self._connection.session(org).items(path, names, "runner_groups")
            return [_group(item) async for item in found if number(item.get("id"))]

    async def _list_runners(self, scope: RunnerScope, query: str, **names: str | int) -> list[RegisteredRunner]:
        """All runners, each once. A removal between two pages moves a runner past the reader: then read again."""
        session = self._connection.session(scope.owner)
        path = scope_path(scope) + "/runners" + query
        found: dict[int, RegisteredRunner] = {}
        for _ in range(READS):
            total = pages = 0
            async for page in session.pages(path, scope_names(scope, **names), "runners"):
                pages += 1
                total = page.total_count or 0
                found |= {runner.id: runner for runner in map(_runner, page.items) if runner is not None}
            if pages == 1 or len(found) >= total:
                break
        return list(found.values())


def _runner(item: Item) -> RegisteredRunner | None:
    runner_id = number(item.get("id"))
    if runner_id is None:
        return None
    return RegisteredRunner(
        id=runner_id,
        name=text(item.get("name")),
        is_online=item.get("status") == "online",
        is_busy=item.get("busy") is True,
        labels=texts([dig(label, "name") for label in item.get("labels") or ()]),
        version=text(item.get("version")) or None,
    )


def _group(item: Item) -> RunnerGroup:
    return RunnerGroup(
        id=item["id"],
        name=text(item.get("name")),
        visibility=text(item.get("visibility")) or "all",
        is_default=item.get("default") is True,
        allows_public_repositories=item.get("allows_public_repositories") is True,
    )

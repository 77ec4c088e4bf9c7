"""Webhook deliveries: what GitHub tried to deliver, and to ask it to deliver again."""

from __future__ import annotations

from collections.abc import AsyncIterator

from jobyard.domain.instant import Instant, instant
from jobyard.github.api import HookDelivery
from jobyard.github.client.connection import Endpoints, number, text
from jobyard.github.client.session import PER_PAGE, GitHubSession, Item, Names
from jobyard.github.errors import GitHubError

APP_HOOK = "/app/hook/deliveries"
ORG_HOOK = "/orgs/{owner}/hooks/{hook}/deliveries"


class DeliveryEndpoints(Endpoints):
    async def deliveries(self, since: Instant) -> AsyncIterator[HookDelivery]:
        """Deliveries of the App's hook; else of each organization hook in turn, newest first.

        All are read, not only failed ones: whether a delivery failed is known only with its later attempts. A hook
        that cannot be read raises its error after the others were read.
        """
        if self._connection.access.is_app:
            async for delivery in _deliveries(self._connection.root, since, None, None):
                yield delivery
            return
        failure: GitHubError | None = None
        for org, hook_id in self._connection.access.org_hooks.items():
            try:
                async for delivery in _deliveries(self._connection.session(org), since, org, hook_id):
                    yield delivery
            except GitHubError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    async def redeliver(self, delivery: HookDelivery) -> None:
        path, names = _hook(delivery.org, delivery.hook_id)
        session = self._connection.root if delivery.org is None else self._connection.session(delivery.org)
        await session.send("POST", path + "/{delivery}/attempts", {**names, "delivery": delivery.id})


async def _deliveries(
    session: GitHubSession, since: Instant, org: str | None, hook_id: int | None
) -> AsyncIterator[HookDelivery]:
    path, names = _hook(org, hook_id)
    async for page in session.pages(path + "{?per_page}", {**names, "per_page": PER_PAGE}):
        found = [delivery for item in page.items if (delivery := _delivery(item, org, hook_id)) is not None]
        new = [delivery for delivery in found if delivery.delivered_at >= since]
        for delivery in new:
            yield delivery
        # A delivery that took long may be listed out of order, so one that is too old does not end the list.
        if found and not new:
            return


def _hook(org: str | None, hook_id: int | None) -> tuple[str, Names]:
    if org is None or hook_id is None:
        return APP_HOOK, {}
    return ORG_HOOK, {"owner": org, "hook": hook_id}


def _delivery(item: Item, org: str | None, hook_id: int | None) -> HookDelivery | None:
    delivery_id = number(item.get("id"))
    try:
        delivered_at = instant(text(item.get("delivered_at")))
    except ValueError:
        return None
    if delivery_id is None:
        return None
    return HookDelivery(
        id=delivery_id,
        guid=text(item.get("guid")),
        delivered_at=delivered_at,
        event=text(item.get("event")),
        action=text(item.get("action")) or None,
        status_code=number(item.get("status_code")) or 0,
        org=org,
        hook_id=hook_id,
    )

"""Tokens by the command line: made, shown once, listed without their secrets, revoked, and written down."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cli.support import Shop, shop

from jobyard import Jobyard
from jobyard.domain.access import AuditEntry, Principal, Role
from jobyard.operations.audit_log import Audit
from jobyard.operations.tokens import Tokens

__all__ = ["shop"]


def who(shop: Shop, text: str) -> Principal | None:
    async def ask(yard: Jobyard) -> Principal | None:
        return await Tokens(yard.store).authenticate(text)

    return shop.do(ask)


def written(shop: Shop) -> list[AuditEntry]:
    async def ask(yard: Jobyard) -> list[AuditEntry]:
        return await Audit(yard.store).read()

    return shop.do(ask)


def test_a_token_is_made_before_there_is_anything_else(shop: Shop) -> None:
    result = shop.run("tokens", "create", "ci", "--role", "submitter", "--queue", "mail", "--group", "a")
    assert result.exit_code == 0, result.output
    [text] = result.stdout.splitlines()
    principal = who(shop, text)
    assert principal is not None
    assert (principal.name, principal.role, principal.queues, principal.groups) == (
        "ci", Role.SUBMITTER, ("mail",), ("a",),
    )  # fmt: skip
    assert principal.id in result.stderr
    assert text not in result.stderr


def test_a_token_is_made_without_an_app(shop: Shop) -> None:
    result = shop.run("--store", "sqlite:///other.db", "tokens", "create", "me", JOBYARD_APP="")
    assert result.exit_code == 0, result.output
    listed = shop.run("--store", "sqlite:///other.db", "tokens", "list", JOBYARD_APP="")
    assert "\tme\tviewer\tall\tall\t" in listed.stdout


def test_lists_show_no_secret(shop: Shop) -> None:
    text = shop.json("tokens", "create", "me", "--role", "admin", "--expire-seconds", "60")["token"]
    secret = text.split("_", 2)[2]
    for words in (("tokens",), ("tokens", "list"), ("tokens", "list", "--json")):
        shown = shop.run(*words).stdout
        assert "admin" in shown
        assert secret not in shown
    [token] = shop.json("tokens", "list")["tokens"]
    assert shop.json("tokens")["tokens"] == [token]
    assert token["expires_at"] > token["created_at"]


def test_revoke_is_effective_and_audited(shop: Shop) -> None:
    made = shop.json("tokens", "create", "me")
    token_id = made["info"]["id"]
    asked = shop.run("tokens", "revoke", token_id)
    assert (asked.exit_code, who(shop, made["token"]) is None) == (2, False)
    assert shop.run("tokens", "revoke", token_id, "--yes").exit_code == 0
    assert who(shop, made["token"]) is None
    assert [(entry.action, entry.target, entry.name) for entry in written(shop)] == [
        ("token.create", token_id, "owner"),
        ("token.revoke", token_id, "owner"),
    ]


@pytest.mark.parametrize("words", [("create", "me", "--role", "admim"), ("create", ""), ("revoke", "nobody", "--yes")])
def test_invalid_options_are_rejected(shop: Shop, words: tuple[str, ...]) -> None:
    shop.run("tokens", "create", "me")
    assert shop.run("tokens", *words).exit_code in (1, 2)
    assert len(shop.json("tokens", "list")["tokens"]) == 1


def test_a_token_given_as_id_is_not_printed(shop: Shop) -> None:
    made: dict[str, Any] = shop.json("tokens", "create", "me")
    refused = shop.run("tokens", "revoke", made["token"], "--yes")
    assert refused.exit_code == 1
    assert made["token"] not in refused.output + refused.stderr

"""Owners, repositories, runner groups, the App, its installations, and tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from jobyard.demo.fake_github.core import Core
from jobyard.demo.fake_github.entities import App, Installation, Owner, Repository, RunnerGroup, Token
from jobyard.demo.fake_github.errors import ApiError, not_found
from jobyard.demo.fake_github.keys import RsaKey


class Accounts:
    """Names of accounts and repositories are looked up without regard to case."""

    def __init__(self, core: Core, key: RsaKey | None) -> None:
        self._core = core
        self.owners: dict[str, Owner] = {}
        self.installations: dict[int, Installation] = {}
        self.tokens: dict[str, Token] = {}
        self.app = App(id=4711, slug="job-runners", client_id="Iv1.4711fa4e", key=key, created_at=core.clock())

    def create_owner(self, login: str, kind: Literal["Organization", "User"]) -> Owner:
        if login.lower() in self.owners:
            raise ValueError(f"Cannot create account {login}: it exists.")
        owner = Owner(id=self._core.next_id("account", 101), login=login, type=kind)
        owner.groups[1] = RunnerGroup(id=1, name="Default", allows_public_repositories=True)
        self.owners[login.lower()] = owner
        return owner

    def create_repository(self, owner: Owner, name: str, *, private: bool = True) -> Repository:
        if name.lower() in owner.repositories:
            raise ValueError(f"Cannot create repository {owner.login}/{name}: it exists.")
        number = self._core.next_id("repository", 1001)
        repository = Repository(id=number, owner=owner, name=name, private=private, created_at=self._core.clock())
        owner.repositories[name.lower()] = repository
        return repository

    def create_group(
        self,
        owner: Owner,
        name: str,
        *,
        visibility: Literal["all", "private", "selected"] = "all",
        repositories: Iterable[Repository] = (),
        allows_public_repositories: bool = False,
        inherited: bool = False,
    ) -> RunnerGroup:
        group = RunnerGroup(
            id=max(owner.groups) + 1,
            name=name,
            visibility=visibility,
            repositories=list(repositories),
            allows_public_repositories=allows_public_repositories,
            inherited=inherited,
        )
        owner.groups[group.id] = group
        return group

    def install_app(self, owner: Owner, permissions: dict[str, str] | None = None) -> Installation:
        installation = Installation(
            id=self._core.next_id("installation", 501), owner=owner, created_at=self._core.clock()
        )
        if permissions is not None:
            installation.permissions = permissions
        self.installations[installation.id] = installation
        return installation

    def uninstall_app(self, installation: Installation) -> None:
        """Its tokens stop working at once."""
        del self.installations[installation.id]
        self.tokens = {value: each for value, each in self.tokens.items() if each.installation is not installation}

    def installation_of(self, owner: Owner) -> Installation | None:
        return next((each for each in self.installations.values() if each.owner is owner), None)

    def create_installation_token(self, installation: Installation, permissions: dict[str, str] | None = None) -> Token:
        asked = dict(installation.permissions if permissions is None else permissions)
        for name, level in asked.items():
            granted = installation.permissions.get(name)
            if granted is None or (level == "write" and granted == "read"):
                raise ApiError(422, "The permissions requested are not granted to this installation.")
        # Newer servers issue a long stateless form, so nothing may rely on 40 characters.
        value = f"ghs_{self.app.id}_eyJ{self._core.text(33)}.{self._core.text(96)}.{self._core.text(86)}"
        token = Token(
            value=value,
            expires_at=self._core.clock() + self._core.timings.token_lifetime,
            installation=installation,
            permissions=asked,
        )
        self.tokens[value] = token
        return token

    def create_personal_token(self, scopes: Iterable[str], lifetime: float | None = None) -> Token:
        expires_at = None if lifetime is None else self._core.clock() + lifetime
        token = Token(value=f"ghp_{self._core.text(36)}", scopes=frozenset(scopes), expires_at=expires_at)
        self.tokens[token.value] = token
        return token

    def owner(self, login: str) -> Owner:
        owner = self.owners.get(login.lower())
        if owner is None:
            raise not_found()
        return owner

    def organization(self, login: str) -> Owner:
        owner = self.owner(login)
        if owner.type != "Organization":
            raise not_found()
        return owner

    def repository(self, login: str, name: str) -> Repository:
        repository = self.owner(login).repositories.get(name.lower())
        if repository is None:
            raise not_found()
        return repository

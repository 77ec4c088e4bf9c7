"""How the manager reaches GitHub: its address, and a personal access token or the key of a GitHub App."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec

from jobyard.errors import ConfigurationError

GITHUB_URL = "https://github.com"


class GitHubAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Either `token`, or `app_id` and `private_key`. The repr omits all secrets."""

    url: str = GITHUB_URL
    api_url: str | None = None  # None: derived from `url`
    token: str | None = None
    app_id: int | str | None = None  # or the client id of the App
    private_key: str | None = None  # PEM
    ca_file: str | None = None  # trusted beside the authorities of the system
    org_hooks: dict[str, int] = {}  # organization: id of its webhook; for a token only, since an App has its own

    def __repr__(self) -> str:
        kind = f"app_id={self.app_id!r}" if self.is_app else "token=..."
        return f"GitHubAccess(url={self.url!r}, {kind})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("url", self.url), ("app_id", self.app_id)]

    @property
    def is_app(self) -> bool:
        return self.app_id is not None

    @property
    def pem(self) -> str:
        """The private key. Environment variables often carry its line ends as a backslash and an n."""
        return (self.private_key or "").replace("\\n", "\n").strip() + "\n"

    @property
    def base_url(self) -> str:
        """The address of the REST API, without a slash at the end.

        >>> GitHubAccess().base_url, GitHubAccess(url="https://github.example.com/").base_url
        ('https://api.github.com', 'https://github.example.com/api/v3')
        >>> GitHubAccess(url="https://acme.ghe.com").base_url
        'https://api.acme.ghe.com'
        """
        if self.api_url:
            return self.api_url.rstrip("/")
        parts = urlsplit(self.url)
        host = (parts.hostname or "").removeprefix("www.")
        if host == "github.com" or host.endswith(".ghe.com"):
            return f"https://api.{host}"
        return self.url.rstrip("/") + "/api/v3"

    def validate(self) -> None:
        for name, url in (("github_url", self.url), ("github_api_url", self.base_url)):
            parts = urlsplit(url)
            if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query:
                # The value is not shown: it may contain a password.
                raise ConfigurationError(f"Invalid {name}: use an address like https://github.example.com.")
        if self.is_app and self.token:
            raise ConfigurationError(
                "Both github_token and github_app_id are set. Keep one of them: the App if you have one."
            )
        if self.is_app != bool(self.private_key):
            raise ConfigurationError("A GitHub App needs github_app_id and github_private_key. Set both.")
        if not self.is_app and not self.token:
            raise ConfigurationError(
                "No access to GitHub is configured. Set github_app_id and github_private_key, or github_token."
            )
        if self.token and not (self.token.isascii() and self.token.isprintable() and " " not in self.token):
            raise ConfigurationError("Invalid github_token: it contains spaces or line ends. Copy it again.")

"""Errors that the fake answers with."""

from __future__ import annotations

from collections.abc import Mapping

DOCUMENTATION_URL = "https://docs.github.com/enterprise-server@3.19/rest"


class ApiError(Exception):
    """A REST error: status, message and, for 422, the list of details."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        errors: list[object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{status} {message}")
        self.status = status
        self.message = message
        self.errors = errors
        self.headers = dict(headers or {})

    def body(self) -> dict[str, object]:
        body: dict[str, object] = {"message": self.message, "documentation_url": DOCUMENTATION_URL}
        if self.status == 422:
            if self.errors is not None:
                body["errors"] = self.errors
        else:
            body["status"] = str(self.status)
        return body


def not_found() -> ApiError:
    return ApiError(404, "Not Found")


class SessionRefused(Exception):
    """A runner program cannot open a session with this just-in-time configuration."""


class ConnectionLost(Exception):
    """The connection closed before a response arrived; the request may have been carried out."""

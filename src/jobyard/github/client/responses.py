"""What a response of GitHub means: its message, and the error that it stands for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec

from jobyard.github.client.http import Response, unavailable
from jobyard.github.errors import GitHubError, GitHubRejected

SUCCESS = (200, 201, 202, 204)
LONGEST_MESSAGE = 500


def is_json(response: Response) -> bool:
    """Whether a body is JSON by its type; GitHub's types may have a suffix, such as application/vnd.github+json."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def message_of(response: Response) -> str | None:
    """GitHub's explanation of an error, in one line. None: the response is not from GitHub's API.

    >>> body = b'{"message": "Validation Failed", "errors": [{"field": "name", "code": "invalid"}, "too long"]}'
    >>> message_of(Response(422, {"content-type": "application/json"}, body))
    'Validation Failed (name invalid; too long)'
    """
    if not is_json(response):
        return None
    try:
        data = msgspec.json.decode(response.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(data, dict) or not isinstance(data.get("message"), str):
        return None
    details = "; ".join(_details(data.get("errors")))
    text = f"{data['message']} ({details})" if details else data["message"]
    return " ".join(text.split())[:LONGEST_MESSAGE].rstrip(". ")


def _details(errors: Any) -> Iterator[str]:
    for error in errors if isinstance(errors, list) else [errors]:
        if isinstance(error, str):
            yield error
        elif isinstance(error, dict):
            found = error.get("message") or " ".join(str(error[key]) for key in ("field", "code") if error.get(key))
            if found:
                yield str(found)


def error_of(method: str, url: str, response: Response, message: str | None) -> GitHubError:
    """The error that a response without success stands for; rate limits are recognized before."""
    status = response.status
    if status >= 500 or status == 408:
        return unavailable(method, url, f"GitHub responded with {status}" + (f", {message}" if message else ""))
    if 300 <= status < 400:
        return _moved(method, url, response)
    if message is None:
        # A login page or an error page. Its 404 says nothing about a runner, so this is not a rejection by GitHub.
        return unavailable(method, url, f"the response with status {status} is not GitHub's, perhaps a proxy's")
    return GitHubRejected(f"Cannot {method} {urlsplit(url).path}: GitHub responded with {status}, {message}.", status)


def _moved(method: str, url: str, response: Response) -> GitHubError:
    target = urlsplit(response.headers.get("location", ""))
    if not target.hostname:
        return GitHubRejected(
            f"Cannot {method} {urlsplit(url).path}: GitHub responded with {response.status}, moved. Use its new name.",
            response.status,
        )
    return unavailable(
        method, url, f"it is redirected to {target.scheme}://{target.hostname}; check github_url and github_api_url"
    )

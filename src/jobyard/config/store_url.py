"""Store URLs: parsing, option checks, and a form without secrets for logs and errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TypeVar
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

from jobyard.errors import UnknownStore, did_you_mean
from jobyard.operations.secrets import secret

T = TypeVar("T")


class StoreUrl:
    """The URL of a store on a server. `take` removes an option of jobyard; the rest goes to the client library."""

    def __init__(self, url: str, own: Iterable[str], client: Iterable[str]) -> None:
        self.shown = shown(url)
        self.parts = split(url)
        self.options: dict[str, str] = {}
        if self.parts.fragment:
            raise UnknownStore(f"{self.shown} contains a #. Write # in a password as %23.")
        known = [*own, *client]
        for key, value in parse_qsl(self.parts.query, keep_blank_values=True):
            if key not in known:
                hint = did_you_mean(key, known)
                raise UnknownStore(f"{self.shown}: unknown option {key}.{hint} Known: {', '.join(known)}.")
            if key in self.options:
                raise UnknownStore(f"{self.shown}: option {key} is given twice.")
            self.options[key] = value

    def take(self, key: str, default: T, read: Callable[[str], T], allowed: str) -> T:
        if key not in self.options:
            return default
        value = self.options.pop(key)
        try:
            return read(value)
        except ValueError:
            raise UnknownStore(f"{self.shown}: {key} must be {allowed}, not {value!r}.") from None

    def url(self, password_variable: str, scheme: str = "") -> str:
        """The URL for the client library, with the password from the environment if the URL has none."""
        netloc = self.parts.netloc
        if self.parts.password is None:
            password = secret(password_variable, os.environ)
            if password:
                user, at, host = netloc.rpartition("@")
                netloc = f"{user if at else ''}:{quote(password, safe='')}@{host}"
        query = f"?{urlencode(self.options)}" if self.options else ""
        return f"{scheme or self.parts.scheme}://{netloc}{self.parts.path}{query}"


def split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        # The message of urllib may quote a password.
        raise UnknownStore(
            f"{shown(url)} is not a URL: cannot read its host or port. A port is a number up to 65535; "
            "write @, :, / and # in a password as %40, %3A, %2F and %23."
        ) from None
    return parts


def shown(url: str) -> str:
    """The URL without user, password and options, which must not reach a log.

    >>> shown("redis://:a@b#/c@host:6379/0?prefix=x")
    'redis://host:6379/0'
    >>> shown("redis://:secret")
    'redis://…'
    """
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url.rpartition("@")[2].partition("?")[0]
    has_user = "@" in rest
    rest = rest.rpartition("@")[2]
    try:
        _ = urlsplit(f"{scheme}://{rest}").port
    except ValueError:
        # It may be a password with a missing @.
        return f"{scheme}://…{'@…' if has_user else ''}"
    return f"{scheme}://{rest.partition('?')[0]}"


def integer(least: int, most: int) -> Callable[[str], int]:
    """
    >>> integer(1, 1000)("16")
    16
    """

    def read(text: str) -> int:
        number = int(text)
        if not least <= number <= most:
            raise ValueError(text)
        return number

    return read


def yes_or_no(text: str) -> bool:
    """
    >>> yes_or_no("true"), yes_or_no("0")
    (True, False)
    """
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in words:
        raise ValueError(text)
    return words[text.lower()]

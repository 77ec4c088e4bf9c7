"""Redaction: secrets hidden from principals without the permission to reveal them.

In decoded JSON the rule goes by the names of fields; in text it finds passwords in URLs, and JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from jobyard.domain.job import Job
from jobyard.domain.payload_path import split_condition

# How the name of a secret ends, in any case. The dashboard receives it with GET /v1/me, so it must be valid in
# JavaScript as well. "tokens" is missing on purpose: it is usually a count, such as max_tokens. So are ids, such as
# token_id: they name a secret and do not hold it. Short words count as whole words only: a "spin" is no PIN.
HIDDEN_NAMES = (
    r"(pass(words?|wd|phrases?|codes?)?|pwd|secrets?|token|jwt|bearer|cookies?|credentials?|authorization"
    r"|(api|access|private|secret|signing|encryption|master|shared)[_-]?keys?"
    r"|(?<![a-z])(t?otp|pin|cvv|cvc)|(sms|email|phone|user|card)[_-]?(otp|pin)"
    r"|(otp|pin|mfa|2fa|verification|security|recovery|backup)[_-]?codes?)"
    r"([_-]?(hash|digest|salt|value|pem))?[_-]?[0-9]*$"
)
HIDDEN = "[hidden]"
_HIDDEN_JSON = b'"[hidden]"'
_secret_name = re.compile(HIDDEN_NAMES, re.IGNORECASE)
_NAMES = HIDDEN_NAMES.removesuffix("$")
# What is before a secret in a URL, and the secret: the password, a long user name without one, which is a token, and
# the value of a parameter that is named like a secret or is the signature of the URL.
_URL_SECRETS = (
    r"(://[^\s/?#@:\"'<>]*:)[^\s/\"'<>]+(?=@)",
    r"(://)[^\s/?#@:\"'<>]{20,}(?=@)",
    rf"([?&;#][\w.%\[\]-]{{0,60}}?(?:{_NAMES}|sig|signature)=)[^\s&;#\"'<>]+",
)
_secrets_in_text = [re.compile(each, re.IGNORECASE | re.ASCII) for each in _URL_SECRETS]
# Words that such a name ends with, without alternatives that make a search slow: most documents hold none of them.
_WORD_ENDS = (
    r"(?:pass(?:words?|wd|phrases?|codes?)?|pwd|secrets?|token|jwt|bearer|cookies?|credentials?|authorization|keys?"
    r"|otp|pin|cvv|cvc|codes?)(?:[_-]?(?:hash|digest|salt|value|pem))?[_-]?[0-9]*\""
)
_secret_words, _secret_names = (re.compile(each.encode()) for each in (_WORD_ENDS, _NAMES + '"'))
_secret_urls = [re.compile(each.encode()) for each in _URL_SECRETS]
# The fields of a pair of a name and a value: a header, a variable of the environment.
_NAME_KEYS, _VALUE_KEYS = ("name", "key"), ("value", "values")
_OPENING = ("{", "[")


def is_secret_name(name: str) -> bool:
    """
    >>> [name for name in ("apiKey", "password_2", "X-Auth-Token", "max_tokens", "monkey") if is_secret_name(name)]
    ['apiKey', 'password_2', 'X-Auth-Token']
    >>> [name for name in ("passwordHash", "otp", "card_pin", "token_id", "spin", "hotpot") if is_secret_name(name)]
    ['passwordHash', 'otp', 'card_pin']
    """
    return _secret_name.search(name) is not None


def secret_conditions(conditions: Iterable[str]) -> list[str]:
    """The conditions on a payload whose path leads to a secret.

    >>> secret_conditions(["user.id:42", "login.password:x", "credentials.0.user:ann"])
    ['login.password:x', 'credentials.0.user:ann']
    """
    return [each for each in conditions if any(map(is_secret_name, split_condition(each)[0]))]


def redacted(value: Any) -> Any:
    """Decoded JSON or a struct with its secrets hidden; null and booleans stay, because they reveal nothing.

    So are those in text (see `redacted_text`), and the values of pairs of a name and a value: headers, lists of two,
    options of a command.

    >>> redacted({"user": "ann", "password": "x", "keys": [{"token": 7}], "secret": {"a": 1}, "has_password": True})
    {'user': 'ann', 'password': '[hidden]', 'keys': [{'token': '[hidden]'}], 'secret': '[hidden]', 'has_password': True}
    >>> redacted({"body": '{"password": "x"}', "headers": [{"name": "Authorization", "value": "x"}]})
    {'body': '{"password":"[hidden]"}', 'headers': [{'name': 'Authorization', 'value': '[hidden]'}]}
    >>> redacted([["password", "x"], ["user", "ann"], ["login", "--user", "ann", "--password", "x"]])
    [['password', '[hidden]'], ['user', 'ann'], ['login', '--user', 'ann', '--password', '[hidden]']]
    """
    try:
        return _redacted(value)
    except RecursionError:
        return HIDDEN


def _redacted(value: Any) -> Any:
    if isinstance(value, dict):
        has_secret_value = any(is_secret_name(str(value[key])) for key in _NAME_KEYS if isinstance(value.get(key), str))
        hidden = _VALUE_KEYS if has_secret_value else ()
        return {name: HIDDEN if _is_secret(name, each, hidden) else _redacted(each) for name, each in value.items()}
    if isinstance(value, str):
        return redacted_text(value)
    if isinstance(value, list | tuple):
        found = [_redacted(each) for each in value]
        for place in _values_after_names(value):
            found[place] = HIDDEN
        return tuple(found) if isinstance(value, tuple) else found
    if isinstance(value, msgspec.Raw):
        return redacted_json(value)
    if isinstance(value, msgspec.Struct):
        # Each part on its own: one that is too deep must not hide the others.
        return msgspec.structs.replace(
            value, **{name: redacted(getattr(value, name)) for name in value.__struct_fields__}
        )
    return value


def _values_after_names(items: Sequence[Any]) -> list[int]:
    """Places in a list whose value follows its name: in a list of two, or after an option of a command."""
    return [
        place
        for place, (name, value) in enumerate(pairwise(items), start=1)
        if isinstance(name, str)
        and (len(items) == 2 or name.startswith("-"))
        and is_secret_name(name)
        and " " not in name
        and _is_hideable(value)
    ]


def redacted_text(text: str) -> str:
    """Text without the secrets in its URLs, or in the JSON that it is.

    >>> redacted_text("cannot reach postgres://app:hunter2@db/shop?sslmode=off")
    'cannot reach postgres://app:[hidden]@db/shop?sslmode=off'
    >>> redacted_text("GET https://api.example/v1?api_key=abc&page=2, https://ann@host.example/")
    'GET https://api.example/v1?api_key=[hidden]&page=2, https://ann@host.example/'
    """
    if text.lstrip()[:1] in _OPENING:
        try:
            decoded = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError):
            pass
        else:
            without = _redacted(decoded)
            return text if without == decoded else msgspec.json.encode(without).decode()
    for pattern in _secrets_in_text:
        text = pattern.sub(_without_secret, text)
    return text


def _without_secret(found: re.Match[str]) -> str:
    return found[1] + HIDDEN


def _is_secret(name: Any, value: Any, hidden: Sequence[str]) -> bool:
    return _is_hideable(value) and (name in hidden or is_secret_name(str(name)))


def _is_hideable(value: Any) -> bool:
    return value is not None and not isinstance(value, bool)


def redacted_json(stored: bytes | msgspec.Raw) -> msgspec.Raw:
    """A stored JSON document with its secrets hidden; whole documents are hidden if they cannot be decoded.

    >>> bytes(redacted_json(b'{"a": 1.50, "token": "x"}')), bytes(redacted_json(b'{"a": 1.50}'))
    (b'{"a":1.5,"token":"[hidden]"}', b'{"a": 1.50}')
    """
    if not _may_hold_secrets(bytes(stored)):
        return msgspec.Raw(stored)
    try:
        return msgspec.Raw(msgspec.json.encode(redacted(msgspec.json.decode(stored))))
    except (msgspec.DecodeError, RecursionError):
        return msgspec.Raw(_HIDDEN_JSON)


def _may_hold_secrets(stored: bytes) -> bool:
    """Whether JSON holds the end of a secret name, a URL with a secret, or an escape that may hide either."""
    lowered = stored.lower()
    return (
        b"\\" in lowered
        or (_secret_words.search(lowered) is not None and _secret_names.search(lowered) is not None)
        or any(pattern.search(lowered) for pattern in _secret_urls)
    )


def redacted_job(job: Job) -> Job:
    """The job without the secrets in its data and its texts: errors, log lines, messages and the reason of its end."""
    found: Job = redacted(job)
    return found

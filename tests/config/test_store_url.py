"""URLs of stores on servers: options checked, passwords found and never shown."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path
from typing import Any

import pytest

from jobyard.config.store_factory import make_store
from jobyard.config.store_url import StoreUrl
from jobyard.errors import ConfigurationError, UnknownStore
from jobyard.operations.secrets import secret

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("redi://host", ("redi://host", 'Did you mean "redis"')),
        ("postgresq://host", ("postgresq://host", 'Did you mean "postgresql"')),
        ("redis://:hunter2@host:6379/0?conections=3", ("conections", 'Did you mean "connections"?')),
        ("redis://:hunter2@host?connections=0", ("redis://host", "connections", "1 to 1000", "'0'")),
        ("redis://:hunter2@host?connections=many", ("connections", "1 to 1000", "'many'")),
        ("redis://:hunter2@host?prefix={a}", ("prefix", "'{a}'")),
        ("redis://:hunter2@host?prefix=a&prefix=b", ("prefix", "twice")),
        ("redis://:hunter2@host?ssl_ca_certs=ca.crt", ("ssl_ca_certs",)),
        ("redis://:hunter2@host/jobs", ("redis://host:6379/0",)),
        ("redis://:hunter2@host:port/0", ("host or port",)),
        ("redis://:hunter2", ("host or port",)),
        ("redis://:hunter2#@host", ("%40", "%23")),
        ("redis://hunter2#:x@host", ("%23",)),
        ("postgresql://", ("neither a host nor a database", "postgresql:///database")),
        ("postgresql:///?schema=a", ("neither a host nor a database",)),
        ("postgresql://me:hunter2@host/db?pooled=maybe", ("pooled", "true or false", "'maybe'")),
        ("postgresql://me:hunter2@host/db?pool=true", ("pool", 'Did you mean "pooled"?')),
        ("postgresql://me:hunter2@host/db?schema=a-b", ("schema", "'a-b'")),
        ("postgresql://me:hunter2@host/db?sslmode=always", ("sslmode", "disable, allow, prefer, require")),
        ("postgres://me@host/db?password=hunter2", ("password",)),
    ],
)
def test_a_wrong_url_is_explained_and_shows_no_password(url: str, named: tuple[str, ...]) -> None:
    with pytest.raises(UnknownStore) as caught:
        make_store(url)
    for each in named:
        assert each in str(caught.value)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value.__cause__)


def test_a_password_comes_from_the_url_the_variable_or_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "password"
    file.write_text("from the file\n")
    for url, variable, path, expected in (
        ("redis://host/0", "", "", "redis://host/0"),
        ("redis://host/0", "a@b/c", "", "redis://:a%40b%2Fc@host/0"),
        ("redis://me@host/0", "x", "", "redis://me:x@host/0"),
        ("redis://host/0", "", str(file), "redis://:from%20the%20file@host/0"),
        ("redis://host/0", "x", str(file), "redis://:x@host/0"),
        ("redis://:own@host/0", "x", str(file), "redis://:own@host/0"),
        ("redis:///0", "", "", "redis:///0"),
    ):
        monkeypatch.setenv("REDIS_PASSWORD", variable)
        monkeypatch.setenv("REDIS_PASSWORD_FILE", path)
        assert StoreUrl(url, (), ()).url("REDIS_PASSWORD") == expected


def test_a_password_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"/no/such/file.*PGPASSWORD_FILE"):
        secret("PGPASSWORD", {"PGPASSWORD_FILE": "/no/such/file"})


def test_what_is_not_ours_goes_to_the_client_library() -> None:
    address = StoreUrl(
        "postgresql://h/db?sslmode=verify-full&schema=a&sslrootcert=%2Fca", ("schema",), ("sslmode", "sslrootcert")
    )
    assert address.take("schema", "", str, "") == "a"
    assert address.url("NO_SUCH_VARIABLE") == "postgresql://h/db?sslmode=verify-full&sslrootcert=%2Fca"


@pytest.mark.parametrize(
    ("url", "package", "extra"), [("redis://h", "redis", "redis"), ("postgresql://h/d", "asyncpg", "postgres")]
)
def test_a_missing_client_library_is_named_with_the_extra(
    url: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=package)
        return real(name, *rest, **more)

    for name in [name for name in sys.modules if name.startswith((package, f"jobyard.stores.{extra}"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ConfigurationError, match=rf"Python package {package}.*pip install 'jobyard\[{extra}\]'"):
        make_store(url)

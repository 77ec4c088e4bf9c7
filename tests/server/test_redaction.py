"""A viewer sees no values of secrets: in no response, no stream and no search; those who may reveal them do."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2 as httpx
import msgspec
import pytest
from tests.conformance.support import new
from tests.server.sse import listening
from tests.server.support import api_server, ids, serving, submit_job
from tests.server.test_roles import EVERY, TABLE
from tests.server.workflow_support import WorkflowServer, execute, run_of, workflow_server
from tests.support import eventually

from jobyard import Context, WorkflowContext
from jobyard.domain.access import Role
from jobyard.domain.redaction import HIDDEN, is_secret_name, redacted_json, redacted_text
from jobyard.testing.kit import drain

SECRET = "hunter2"
LOGIN: dict[str, Any] = {
    "id": "log_in",
    "params": {"user": {"type": "string"}, "password": {"type": "string"}},
    "steps": [
        {
            "id": "log_in",
            "kind": "log_in",
            "when": 'params.password != "[hidden]"',
            "input": {"user": "${params.user}", "password": "${params.password}"},
        }
    ],
    "output": {"session": "${steps.log_in.output}"},
}


@pytest.fixture
async def server() -> AsyncIterator[WorkflowServer]:
    async with workflow_server(LOGIN) as made:
        yard = made.yard

        @yard.job
        async def log_in(ctx: Context, user: str, password: str) -> dict[str, Any]:
            await ctx.progress(50, "half", data={"api_key": password, "user": user})
            async with ctx.step("ask", data={"session": {"token": password}}):
                pass
            if user == "eve":
                raise ValueError("refused")
            return {"user": user, "access_token": password}

        @yard.workflow
        async def visit(ctx: WorkflowContext, password: str) -> dict[str, Any]:
            async def answer() -> dict[str, Any]:
                return {"token": password}

            return await ctx.step(answer)

        yield made


class Made:
    """Jobs of each kind, with the same secret."""

    def __init__(self, job: str, failed: str, run: str, function: str) -> None:
        self.job, self.failed, self.run, self.function = job, failed, run, function


async def make(server: WorkflowServer, client: httpx.AsyncClient) -> Made:
    payload = {"user": "ann", "password": SECRET}
    made = Made(
        await submit_job(client, "log_in", payload=payload, queue="mail", group="acme"),
        await submit_job(client, "log_in", payload={**payload, "user": "eve"}, max_attempts=1),
        await execute(client, "log_in", payload),
        (await server.yard.enqueue("visit", {"password": SECRET})).id,
    )
    schedule = {"name": "nightly", "expression": "@daily", "kind": "log_in", "payload": payload}
    assert (await client.post("/v1/schedules", json=schedule)).status_code == 201
    where = {"action": "cancel", "filter": {"text": SECRET, "payload": [f"password:{SECRET}"], "state": ["RUNNING"]}}
    assert (await client.post("/v1/operations", json=where)).status_code == 202
    await drain(server.yard)
    return made


async def test_a_viewer_sees_names_and_an_operator_also_values(server: WorkflowServer) -> None:
    async with server.api.client("operator") as operator, server.api.client("viewer") as viewer:
        made = await make(server, operator)
        for client, value in ((operator, SECRET), (viewer, HIDDEN)):
            job = (await client.get(f"/v1/jobs/{made.job}", params={"wait": 1})).json()
            assert job["payload"] == {"user": "ann", "password": value}
            assert job["result"] == {"user": "ann", "access_token": value}
            assert job["progress"]["data"] == {"api_key": value, "user": "ann"}
            assert job["steps"][0]["data"] == {"session": {"token": value}}
            [listed] = (await client.get("/v1/jobs", params={"id": made.job})).json()["items"]
            assert (listed["payload"], listed["result"]) == (job["payload"], job["result"])
            [dead] = (await client.get("/v1/dead-letters")).json()["items"]
            assert (dead["id"], dead["payload"]["password"]) == (made.failed, value)
            run = await run_of(client, made.run)
            assert run["params"] == {"user": "ann", "password": value}
            assert run["output"] == {"session": {"user": "ann", "access_token": value}}
            # Its condition depends on the secret: the state of the step is the true one.
            assert [step["status"] for step in run["steps"]] == ["completed"]
            history = await client.get(f"/v1/jobs/{made.function}/history", params={"results": True})
            assert history.json()["items"][0]["result"] == {"token": value}
            [schedule] = (await client.get("/v1/schedules")).json()["items"]
            assert schedule["payload"]["password"] == value
            [operation] = (await client.get("/v1/operations")).json()["items"]
            assert operation["filter"]["payload"] == [f"password:{value}"]


async def test_a_submitter_sees_the_secrets_that_it_submitted(server: WorkflowServer) -> None:
    async with server.api.client("submitter") as client:
        job_id = await submit_job(client, "log_in", payload={"user": "ann", "password": SECRET})
        await drain(server.yard)
        assert (await client.get(f"/v1/jobs/{job_id}")).json()["result"]["access_token"] == SECRET
        assert await ids(client, payload=f"password:{SECRET}") == [job_id]


async def test_no_response_to_a_viewer_holds_a_secret(server: WorkflowServer) -> None:
    readable = [EVERY[name][0] for name, row in TABLE.items() if name.startswith("GET ") and Role.VIEWER in row.who]
    answered: set[str] = set()
    async with server.api.client("operator") as operator:
        made = await make(server, operator)
        [operation] = (await operator.get("/v1/operations")).json()["items"]
    names = {"queue": "mail", "group": "acme", "schedule": "nightly", "operation_id": operation["id"]}
    names |= {"hash": "x", "name": "x", "code": "x"}
    async with server.api.client("viewer") as viewer:
        for route in readable:
            if route.is_stream:
                continue
            for job_id in (made.job, made.failed, made.run, made.function):
                path = route.path.format(id=job_id, job_id=job_id, **names)
                response = await viewer.get(path, params={"results": "true"} if path.endswith("/history") else {})
                assert SECRET not in response.text, path
                if response.status_code == 200:
                    answered.add(route.path)
    assert {"/v1/jobs/{id}", "/v1/jobs/{id}/history", "/v1/dead-letters", "/api/v2/workflows/{id}"} <= answered


@pytest.mark.parametrize("path", ["/v1/events", "/v1/jobs/{}/events"])
async def test_streams_hide_secrets_in_snapshots_and_changes(server: WorkflowServer, path: str) -> None:
    async with server.api.client("operator") as client:
        job_id = await submit_job(client, "log_in", payload={"user": "ann", "password": SECRET})
    async with serving(server.api.app) as url:
        seen = {}
        tokens = {role: {"Authorization": f"Bearer {await server.api.token(role)}"} for role in ("viewer", "operator")}
        here = path.format(job_id)
        async with (
            httpx.AsyncClient(base_url=url, timeout=60) as http,
            listening(http, here, headers=tokens["viewer"]) as hidden,
            listening(http, here, headers=tokens["operator"]) as shown,
        ):
            await eventually(lambda: hidden.first("snapshot") and shown.first("snapshot"))
            async with server.yard.worker():
                await eventually(lambda: hidden.first("job.completed") and shown.first("job.completed"))
            for name, reader in (("viewer", hidden), ("operator", shown)):
                event = reader.first("job.progress")
                assert event is not None
                seen[name] = (event["data"]["progress"]["data"]["api_key"], SECRET in "".join(reader.lines))
        server.api.dependencies.draining.set()
    assert seen == {"viewer": (HIDDEN, False), "operator": (SECRET, True)}


async def test_search_tells_a_viewer_nothing_about_secrets() -> None:
    texts = []
    queries: list[dict[str, Any]] = [{"text": SECRET}, {"payload": f"note:{SECRET}"}, {"text": SECRET.upper()}]
    for value in ("another", SECRET):
        async with api_server() as api, api.client("operator") as operator, api.client("viewer") as viewer:
            # Another program may have written the name of the field with escapes.
            payload = b'{"user":"ann","pass\\u0077ord":"%s","note":"hello"}' % value.encode()
            await api.store.insert([new(payload=payload) for _ in range(40)])
            responses = [
                await viewer.get(path, params={**query, "page_size": size})
                for path, sizes in (("/v1/jobs", (1, 50)), ("/v1/dead-letters", (1,)))
                for query in queries
                for size in sizes
            ]
            responses += [await viewer.get("/v1/jobs/counts", params=query) for query in queries]
            texts.append([response.text for response in responses])
            assert len(await ids(viewer, text="HELLO")) == len(await ids(viewer, payload="note:hello")) == 40
            assert (await viewer.get("/v1/jobs/counts", params={"text": "ann"})).json()["counts"]["PENDING"] == 40
            found = await operator.get("/v1/jobs/counts", params={"text": SECRET})
            assert found.json()["counts"]["PENDING"] == (40 if value == SECRET else 0)
    assert texts[0] == texts[1]


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/counts", "/v1/dead-letters", "/v1/dead-letters/groups"])
async def test_a_viewer_cannot_search_by_the_path_of_a_secret(server: WorkflowServer, path: str) -> None:
    async with server.api.client("viewer") as viewer, server.api.client("operator") as operator:
        for condition in ("password:x", "login.apiKey:x", "credentials.0:x"):
            response = await viewer.get(path, params={"payload": ["user:ann", condition]})
            assert (response.status_code, response.json()["code"]) == (403, "not_allowed")
            assert (await operator.get(path, params={"payload": condition})).status_code == 200


async def test_counts_respect_the_error_of_dead_letters(server: WorkflowServer) -> None:
    async with server.api.client("operator") as operator:
        await make(server, operator)
        for error, number in (("ValueError: refused", 1), ("ValueError: other", 0)):
            counts = (await operator.get("/v1/jobs/counts", params={"error": error})).json()["counts"]
            assert (counts["FAILED"], counts["COMPLETED"]) == (number, 0)


async def test_secrets_in_json_within_text_and_in_pairs_are_hidden_and_not_found() -> None:
    payloads = (
        {"body": as_text({"login": {"password": SECRET}})},
        {"lines": [as_text(["x", {"api_key": SECRET}])]},
        {"headers": [{"name": "Authorization", "value": f"Bearer {SECRET}"}]},
        {"env": [{"key": "DB_PASSWORD", "value": SECRET}], "again": as_text({"body": as_text({"pwd": SECRET})})},
        {"password_2": SECRET, "Set-Cookie": SECRET, "user": {"passcode": [SECRET], "jwt": {"a": SECRET}}},
    )
    async with api_server() as api, api.client("operator") as operator, api.client("viewer") as viewer:
        for payload in payloads:
            job_id = await submit_job(operator, payload=payload)
            assert SECRET in (await operator.get(f"/v1/jobs/{job_id}")).text
            shown = await viewer.get(f"/v1/jobs/{job_id}")
            assert SECRET not in shown.text and HIDDEN in shown.text, shown.text
        assert await ids(viewer, text=SECRET) == []
        assert await ids(viewer, payload=f"headers.0.value:Bearer {SECRET}") == []
        assert len(await ids(operator, text=SECRET)) == len(payloads)


async def test_text_nested_too_deep_to_search_for_secrets_is_hidden_and_ends_no_stream(server: WorkflowServer) -> None:
    """Data may be 100 levels deep, but JSON in text deeper: a stream of a viewer must survive it."""
    text = '{"inner":' * 600 + as_text({"password": SECRET}) + "}" * 600

    @server.yard.job
    async def dig(ctx: Context) -> None:
        await ctx.progress(10, "deep", data={"body": text})

    async with serving(server.api.app) as url:
        headers = {"Authorization": f"Bearer {await server.api.token('viewer')}"}
        async with (
            httpx.AsyncClient(base_url=url, timeout=60) as http,
            listening(http, "/v1/events", headers=headers) as reader,
        ):
            await eventually(lambda: reader.first("snapshot"))
            job_id = (await server.yard.enqueue("dig")).id
            async with server.yard.worker():
                await eventually(lambda: reader.first("job.completed"))
            shown = await http.get(f"/v1/jobs/{job_id}", headers=headers)
            assert shown.json()["progress"]["data"] == HIDDEN
            assert SECRET not in shown.text + "".join(reader.lines)
        server.api.dependencies.draining.set()


def as_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


async def test_passwords_in_urls_and_pairs_are_hidden_in_every_text(server: WorkflowServer) -> None:
    url = f"postgres://app:{SECRET}@db.example/shop"

    @server.yard.job(max_attempts=1)
    async def connect(ctx: Context, where: str, command: list[str], pairs: list[list[str]]) -> None:
        await ctx.log(f"connecting to {where}")
        await ctx.progress(50, f"https://api.example/?api_key={SECRET}&page=2")
        raise ValueError(f"cannot reach {where}")

    payload = {
        "where": url,
        "command": ["sync", "--user", "ann", "--password", SECRET],
        "pairs": [["password", SECRET], ["user", "ann"]],
        "passwordHash": SECRET,
        "otp": SECRET,
        "pin": 4711,
        "token_id": "tok-17",
    }

    async with server.api.client("operator") as operator, server.api.client("viewer") as viewer:
        fields = {name: payload[name] for name in ("where", "command", "pairs")}
        first = await submit_job(operator, "connect", payload=fields, max_attempts=1)
        later = {**payload, "user": "eve", "password": "x"}
        second = await submit_job(operator, "log_in", payload=later, delay_seconds=3600)
        await drain(server.yard)
        for job_id in (first, second):
            for path in (f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}/explain", "/v1/jobs", "/v1/dead-letters"):
                assert SECRET not in (await viewer.get(path)).text, path
            assert SECRET in (await operator.get(f"/v1/jobs/{job_id}")).text
        shown = (await viewer.get(f"/v1/jobs/{first}")).json()
        assert shown["payload"]["command"] == ["sync", "--user", "ann", "--password", HIDDEN]
        assert shown["payload"]["pairs"] == [["password", HIDDEN], ["user", "ann"]]
        assert shown["progress"]["message"] == "https://api.example/?api_key=[hidden]&page=2"
        assert shown["log"][0]["message"] == "connecting to postgres://app:[hidden]@db.example/shop"
        assert shown["errors"][0]["message"] == "cannot reach postgres://app:[hidden]@db.example/shop"
        assert HIDDEN in shown["errors"][0]["traceback"]
        stored = (await viewer.get(f"/v1/jobs/{second}")).json()["payload"]
        assert (stored["passwordHash"], stored["otp"], stored["pin"], stored["token_id"]) == (HIDDEN,) * 3 + ("tok-17",)


async def test_a_viewer_groups_and_finds_errors_without_the_passwords_in_them(server: WorkflowServer) -> None:
    @server.yard.job(max_attempts=1)
    async def connect(ctx: Context, where: str) -> None:
        raise ValueError(f"cannot reach {where}")

    async with server.api.client("operator") as operator, server.api.client("viewer") as viewer:
        await submit_job(operator, "connect", payload={"where": f"redis://:{SECRET}@cache"}, max_attempts=1)
        await drain(server.yard)
        [full] = (await operator.get("/v1/dead-letters/groups")).json()["items"]
        response = await viewer.get("/v1/dead-letters/groups")
        assert SECRET in full["sample_error"] and SECRET not in response.text
        [group] = response.json()["items"]
        for error, number in ((group["error"], 1), (full["error"], 0)):
            found = (await viewer.get("/v1/dead-letters", params={"error": error})).json()["items"]
            assert len(found) == number


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("amqp://a:p@ss@host/x and ftp://u:q@h", "amqp://a:[hidden]@host/x and ftp://u:[hidden]@h"),
        ("https://ghp_0123456789abcdefghij@github.com/a", "https://[hidden]@github.com/a"),
        (
            "https://h/?a=1&X-Amz-Signature=abc#access_token=x",
            "https://h/?a=1&X-Amz-Signature=[hidden]#access_token=[hidden]",
        ),
        ("Server=db;User=sa;Password=x;Timeout=3", "Server=db;User=sa;Password=[hidden];Timeout=3"),
        ("see https://host:8080/path?email=ann@example.com", "see https://host:8080/path?email=ann@example.com"),
        ("https://ann@host/?page=2&token_id=7", "https://ann@host/?page=2&token_id=7"),
    ],
)
def test_secrets_in_text(text: str, expected: str) -> None:
    assert redacted_text(text) == expected
    assert bytes(redacted_json(as_text({"text": text}).encode())) == as_text({"text": expected}).encode()


@pytest.mark.parametrize("piece", ["://", "://a:", "?a", "&", ";x=", "?token", "a" * 20 + "@", "pass_"])
def test_long_text_is_searched_in_linear_time(piece: str) -> None:
    def seconds(times: int) -> float:
        begin = time.process_time()
        redacted_text(piece * times)
        return time.process_time() - begin

    short, long = 20_000, 200_000
    assert min(seconds(long) for _ in range(3)) < 40 * min(seconds(short) for _ in range(3)) + 0.05


@pytest.mark.parametrize(
    "name",
    [
        "pass",
        "password",
        "PASSWD",
        "passphrase_2",
        "passcode",
        "pwd",
        "client_secret",
        "secrets",
        "token",
        "jwt",
        "bearer",
        "set-cookie",
        "credentials",
        "apiKey",
        "api-keys",
        "access_key",
        "private_key_pem",
        "encryptionKey",
        "shared_key",
        "authorization",
        "passwordHash",
        "password_salt",
        "secretValue",
        "otp",
        "totp",
        "smsOtp",
        "card_pin",
        "PIN",
        "cvv",
        "cvc2",
        "otp_code",
        "mfaCode",
        "security-code",
        "recovery_codes",
    ],
)
def test_each_such_name_is_found_in_stored_json(name: str) -> None:
    assert is_secret_name(name)
    assert bytes(redacted_json(as_text({"a": [{name: SECRET}]}).encode())) == as_text({"a": [{name: HIDDEN}]}).encode()
    assert bytes(redacted_json(as_text([[name, SECRET]]).encode())) == as_text([[name, HIDDEN]]).encode()


@pytest.mark.parametrize(
    "name", ["token_id", "secret_name", "api_key_id", "max_tokens", "spin", "shipping", "country_code", "hotpot", "key"]
)
def test_names_of_other_things_are_shown(name: str) -> None:
    assert not is_secret_name(name)
    assert bytes(redacted_json(as_text({name: "x"}).encode())) == as_text({name: "x"}).encode()

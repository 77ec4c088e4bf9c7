"""Verdicts on real programs: expected output, test cases, checkers, and what cannot fool them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.sandbox.real_programs import Judge, judge

from jobyard.sandbox.attacks.private_daemon import PrivateDaemon

SUM = "print(sum(map(int, input().split())))"


@pytest.fixture
async def here(daemon: PrivateDaemon) -> AsyncIterator[Judge]:
    async with judge(daemon) as made:
        yield made


@pytest.mark.parametrize(
    ("prints", "expected", "comparison", "verdict"),
    [
        ("print(6)", "6", {}, "ACCEPTED"),
        ("print(6)", "6\n", {"comparison": "exact"}, "ACCEPTED"),
        ("print(6)", "6", {"comparison": "exact"}, "WRONG_ANSWER"),
        ("print('a  b ')", "a b", {}, "WRONG_ANSWER"),
        ("print('a  b '); print()", "a b", {"comparison": "tokens"}, "ACCEPTED"),
        ("print(0.1 + 0.2)", "0.3", {"comparison": "numbers"}, "ACCEPTED"),
        ("print(0.31)", "0.3", {"comparison": "numbers", "tolerance": 0.001}, "WRONG_ANSWER"),
        ("print('nan')", "0.3", {"comparison": "numbers", "tolerance": 1}, "WRONG_ANSWER"),
        ("print(6); exit(1)", "6", {}, "RUNTIME_ERROR"),
        ("print(6, flush=True)\nwhile True: pass", "6", {"limits": {"time_seconds": 0.3}}, "TIME_LIMIT"),
    ],
)
async def test_expected_output(
    here: Judge, prints: str, expected: str, comparison: dict[str, Any], verdict: str
) -> None:
    found = await here.result(prints, expected_output=expected, **comparison)
    assert found["verdict"] == verdict
    assert ("mismatch" in found) == (verdict == "WRONG_ANSWER")


async def test_without_expectation_the_result_is_as_before(here: Judge) -> None:
    found = await here.result("print(1)")
    assert found["verdict"] == "OK"
    assert not {"mismatch", "message", "points", "runs", "results"} & set(found)


def case(given: str, expected: str, **rest: Any) -> dict[str, Any]:
    return {"input": given, "expected_output": expected, **rest}


async def test_test_cases_have_points_and_results_of_their_own(here: Judge) -> None:
    tests = [
        case("1 2", "3", name="small", points=2),
        case("1 2", "4", name="wrong", points=5),
        case("x", "", name="crash", points=5),
        case("10 20", "30\n"),
    ]
    found = await here.result(SUM, tests=tests)
    assert [each["verdict"] for each in found["results"]] == ["ACCEPTED", "WRONG_ANSWER", "RUNTIME_ERROR", "ACCEPTED"]
    assert [each["name"] for each in found["results"]] == ["small", "wrong", "crash", "4"]
    assert [each["points"] for each in found["results"]] == [2, 0, 0, 1]
    assert all(isinstance(each["points"], int) for each in found["results"])
    assert (found["verdict"], found["points"], found["max_points"], found["passed"]) == ("WRONG_ANSWER", 3, 13, 2)
    assert found["results"][1]["mismatch"] == {"line": 1, "expected": "4", "actual": "3"}


async def test_stop_at_the_first_failure(here: Judge) -> None:
    tests = [case("1", "1"), case("1", "2"), case("1", "1", name="last")]
    found = await here.result(SUM, tests=tests, stop_at_first_failure=True)
    assert [each["verdict"] for each in found["results"]] == ["ACCEPTED", "WRONG_ANSWER", "SKIPPED"]
    assert found["results"][2] == {"index": 2, "name": "last", "max_points": 1, "verdict": "SKIPPED", "points": 0}


async def test_limits_of_a_case(here: Judge) -> None:
    tests = [case("", "", limits={"time_seconds": 0.2}), case("", "done")]
    found = await here.result("import time; time.sleep(0.6); print('done')", tests=tests)
    assert [each["verdict"] for each in found["results"]] == ["TIME_LIMIT", "ACCEPTED"]


async def test_compile_error_is_the_verdict_of_every_case(here: Judge) -> None:
    await here.needs("c")
    found = await here.result("int main(", "c", tests=[case("", ""), case("", "")])
    assert [each["verdict"] for each in found["results"]] == ["COMPILE_ERROR"] * 2
    assert (found["verdict"], found["points"]) == ("COMPILE_ERROR", 0)
    assert "error" in found["compile"]["stderr"]


async def test_output_of_flooding_cases_is_bounded(here: Judge) -> None:
    """Ten cases that each print all they may: the result stays small enough to store."""
    flood = {"output_bytes": 1 << 20, "time_seconds": 20}
    found = await here.result("print('x' * (1 << 21))", tests=[case("", "")] * 10, limits=flood)
    assert {each["verdict"] for each in found["results"]} == {"OUTPUT_LIMIT"}
    assert sum(len(each["stdout"]) for each in found["results"]) <= 4 << 20


# Checkers

CHECKER = """
import sys
given, output, expected = (open(name).read().split() for name in sys.argv[1:])
if output == expected:
    print("equal")
elif sorted(output) == sorted(expected):
    print("points 0.5")
    print("right words, wrong order")
else:
    print("other words")
    sys.exit(1)
"""


def with_checker(source: str, language: str = "python", **limits: Any) -> dict[str, Any]:
    return {"language": language, "source_code": source, "limits": {"time_seconds": 20, **limits}}


async def test_checker_decides(here: Judge) -> None:
    tests = [case("b a", "a b", points=4), case("a b", "a b", points=4), case("c", "a b", points=4)]
    found = await here.result("print(input())", tests=tests, checker=with_checker(CHECKER))
    assert [each["verdict"] for each in found["results"]] == ["ACCEPTED", "ACCEPTED", "WRONG_ANSWER"]
    assert [each["points"] for each in found["results"]] == [2, 4, 0]
    assert [each["message"] for each in found["results"]] == ["right words, wrong order", "equal", "other words"]


@pytest.mark.parametrize(
    ("checker", "limits"),
    [
        ("while True: pass", {"time_seconds": 0.3}),
        ("print('x' * (1 << 20))", {}),
        ("import os; os.kill(os.getpid(), 9)", {}),
        ("raise SystemExit(3)", {}),
        ("x = bytearray(1 << 29)", {}),
        ("this is not Python: it ends with exit code 1, yet says so on stderr", {}),
    ],
    ids=["hangs", "floods", "dies", "fails", "fills memory", "is invalid"],
)
async def test_checker_that_does_not_decide_accepts_nothing(here: Judge, checker: str, limits: dict[str, Any]) -> None:
    found = await here.result("print(1)", tests=[case("", "1", points=3)], checker=with_checker(checker, **limits))
    assert found["results"][0]["verdict"] in ("CHECKER_ERROR", "WRONG_ANSWER")
    assert (found["points"], found["passed"]) == (0, 0)


async def test_checker_cannot_give_more_than_the_points(here: Judge) -> None:
    for claim in ("points 1e308", "points -1", "points nan", "points inf"):
        found = await here.result(
            "print(1)", tests=[case("", "1", points=3)], checker=with_checker(f"print({claim!r})")
        )
        assert 0 <= found["points"] <= 3


async def test_checker_is_confined_like_any_program(here: Judge) -> None:
    spy = """
import os, socket, sys
found = sorted(os.listdir("."))
try:
    socket.socket()
    found.append("NETWORK")
except OSError:
    pass
print(found, os.path.exists("/root"), "SECRET" in str(os.environ))
"""
    found = await here.result("print(1)", expected_output="1", checker=with_checker(spy))
    assert found["message"] == "['expected.txt', 'input.txt', 'main.py', 'output.txt'] False False"


async def test_program_does_not_see_the_expected_output(here: Judge) -> None:
    source = "import os\nprint(os.listdir('.'), 'needle' in str(list(os.environ.items())))"
    found = await here.result(source, expected_output="needle", checker=with_checker(CHECKER))
    assert found["stdout"] == "['main.py'] False\n"


@pytest.mark.parametrize(
    ("given", "at"),
    [
        ({"tests": [{"points": -1}]}, "/tests/0/points"),
        ({"tests": [{"points": 1e300}]}, "/tests/0/points"),
        ({"tests": [{}] * 101}, "/tests"),
        ({"tests": [{}], "input": "a"}, "/input"),
        ({"tests": [{"limits": {"time_seconds": 99}}]}, "/tests/0/limits/time_seconds"),
        ({"tests": [{"input": "a", "input_base64": "YQ=="}]}, "/tests/0/input_base64"),
        ({"comparison": "fuzzy"}, "/comparison"),
        ({"tolerance": -1}, "/tolerance"),
        ({"runs": 21}, "/runs"),
        ({"checker": {"language": "cobol", "source_code": "x"}}, "/checker/language"),
        ({"checker": {"language": "python", "source_code": ""}}, "/checker/source_code"),
        ({"interactive": True, "tests": [{}]}, "/interactive"),
        ({"files": [{"name": "main.py"}]}, "/files/0/name"),
        ({"compile": {"options": ["-O2"]}}, "/compile/options/0"),
    ],
)
async def test_invalid_requests(here: Judge, given: dict[str, Any], at: str) -> None:
    response = await here.submit("print(1)", **given)
    assert response.status_code == 422, response.text
    assert [error["pointer"] for error in response.json()["errors"]] == [at]


@pytest.mark.parametrize(("name", "meant"), [("c++", "cpp"), ("js", "javascript"), ("pyton", "python"), ("sh", "bash")])
async def test_other_names_of_languages_are_suggested(here: Judge, name: str, meant: str) -> None:
    await here.needs(meant)
    response = await here.submit("print(1)", name)
    assert f'Did you mean "{meant}"?' in response.json()["detail"]


async def test_number_of_runs(here: Judge) -> None:
    found = await here.result("print(1)", runs=3)
    times = sorted(each["execution_time_ms"] for each in found["runs"])
    assert (found["stdout"], len(times)) == ("1\n", 3)
    assert found["execution_time_ms"] == pytest.approx(times[1], abs=0.001)


async def test_different_programs_in_one_request(here: Judge) -> None:
    programs = [
        {"language": "python", "source_code": "print(1)", "expected_output": "1"},
        {"language": "bash", "source_code": "echo 2"},
        {"language": "python", "source_code": "1 / 0"},
    ]
    await here.needs("bash")
    response = await here.client.post("/execute/many", params={"wait": 30}, json={"programs": programs})
    items = response.json()["items"]
    assert response.status_code == 200, response.text
    assert [item["result"]["verdict"] for item in items] == ["ACCEPTED", "OK", "RUNTIME_ERROR"]
    assert len({item["job_id"] for item in items}) == 3
    bad = await here.client.post("/execute/many", json={"programs": [programs[0], {**programs[1], "language": "x"}]})
    assert (bad.status_code, bad.json()["errors"][0]["pointer"]) == (422, "/programs/1/language")

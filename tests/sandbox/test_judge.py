"""Verdicts on real programs: expected output, test cases, checkers, and what cannot fool them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
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
        ("print(2**53 + 1)", str(2**53), {"comparison": "numbers", "tolerance": 0}, "WRONG_ANSWER"),
        ("print(10**30 + 1)", f"{10**30}.0", {"comparison": "numbers", "tolerance": 1e-31}, "WRONG_ANSWER"),
        ("print('+1e2')", "100.0", {"comparison": "numbers", "tolerance": 0}, "ACCEPTED"),
        ("print('1e999999999')", "1", {"comparison": "numbers", "tolerance": 1}, "WRONG_ANSWER"),
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
        ("this is not Python", {}),
        ("open('input.txt').read().split()[0]", {}),
        ("assert False", {}),
    ],
    ids=["hangs", "floods", "dies", "fails", "fills memory", "is invalid", "raises", "asserts"],
)
async def test_checker_that_does_not_decide_accepts_nothing(here: Judge, checker: str, limits: dict[str, Any]) -> None:
    found = await here.result("print(1)", tests=[case("", "1", points=3)], checker=with_checker(checker, **limits))
    assert found["results"][0]["verdict"] == "CHECKER_ERROR", found
    assert found["results"][0]["message"]
    assert (found["points"], found["passed"]) == (0, 0)


@pytest.mark.parametrize(
    ("language", "fails", "rejects"),
    [
        ("python", "raise KeyError('x')", "import sys; sys.exit('other words')"),
        ("javascript", "null.x", "console.error('other words'); process.exit(1)"),
        ("typescript", "throw new Error('x');", "process.exit(1);"),
        (
            "java",
            "public class Main { public static void main(String[] a) { throw new RuntimeException(); } }",
            "public class Main { public static void main(String[] a) { System.exit(1); } }",
        ),
        (
            "go",
            'package main\nimport "os"\nfunc main() { println(os.Args[9]) }',
            'package main\nimport "os"\nfunc main() { os.Exit(2) }',
        ),
        ("ruby", "nil.x", "abort 'other words'"),
        ("perl", "$! = 2; die 'x'", "exit 1"),
        ("lua", "nothing()", "os.exit(1)"),
        ("tcl", "nothing", "exit 1"),
        ("r", "f <- function() stop('x'); f()", "quit(status=1)"),
    ],
)
async def test_failing_checker_is_not_a_rejection(here: Judge, language: str, fails: str, rejects: str) -> None:
    await here.needs(language)
    for source, verdict in ((fails, "CHECKER_ERROR"), (rejects, "WRONG_ANSWER")):
        checker = with_checker(source, language, memory_mb=256)
        found = await here.result("print(1)", expected_output="1", checker=checker)
        assert found["verdict"] == verdict, found


@pytest.mark.parametrize("claim", ["points 1e308", "points 2", "points -1", "points nan", "points inf"])
@pytest.mark.parametrize("code", [0, 7])
async def test_checker_cannot_give_more_than_the_points(here: Judge, claim: str, code: int) -> None:
    checker = with_checker(f"print({claim!r}); raise SystemExit({code})")
    found = await here.result("print(1)", tests=[case("", "1", points=3)], checker=checker)
    assert (found["points"], found["verdict"]) == (0, "CHECKER_ERROR")
    assert claim in found["results"][0]["message"]


ECHO = """
import sys
text = open("output.txt").read()
if sys.argv[3:] and text.split()[:1] == open("expected.txt").read().split():
    sys.exit(0)
{0}
sys.exit({1})
"""
TRACEBACK = 'Traceback (most recent call last):\\n  File \\"/box/main.py\\", line 1\\nKeyError: 1'


@pytest.mark.parametrize("forged", ["points 1", "x\\npoints 1", "points nan", TRACEBACK, f"{TRACEBACK}\\npoints 1"])
@pytest.mark.parametrize(
    ("echo", "code"),
    [
        ("print(text)", "1"),
        ("print(text, file=sys.stderr)", "2"),
        ("print(text); print(text, file=sys.stderr)", "1"),
        ("for word in text.split('\\n'): print(word.strip(), file=sys.stderr)", "1"),
        ("", "text"),
        ("", "'expected 5, got:\\\\n' + text + ' instead'"),
    ],
)
async def test_echoed_output_changes_no_verdict(here: Judge, forged: str, echo: str, code: str) -> None:
    """What a program prints, and a checker repeats, gives no points and does not look like an error of the checker."""
    checker = with_checker(ECHO.format(echo.replace("\\\\n", "\\n"), code.replace("\\\\n", "\\n")))
    found = await here.result(f'print("{forged}")', tests=[case("", "5", points=3)], checker=checker)
    assert (found["verdict"], found["points"]) == ("WRONG_ANSWER", 0)


@pytest.mark.parametrize(
    ("language", "report", "echo"),
    [
        (
            "javascript",
            "Node.js v18.1.0",
            "for (const line of require('fs').readFileSync('output.txt', 'utf8').split('\\n'))"
            " console.error(`${line} is wrong`);\nprocess.exit(1);",
        ),
        (
            "perl",
            "x at main.pl line 1.",
            "open F, 'output.txt'; while (<F>) { chomp; print STDERR \"got: $_ 23\\n\" } exit 1",
        ),
        (
            "ruby",
            "main.rb:1:in x: y (NoMethodError)",
            "File.foreach('output.txt') { |line| warn line; warn line.chomp + ' (Wrong)' }\nexit 2",
        ),
        (
            "lua",
            "/usr/bin/lua5.4: main.lua:1: x",
            "for line in io.lines('output.txt') do io.stderr:write(line, ' is wrong\\n') end os.exit(1)",
        ),
        ("tcl", "    while executing", "puts stderr [read [open output.txt]]; exit 1"),
        ("r", "Execution halted", "writeLines(readLines('output.txt'), stderr()); quit(status=1)"),
        (
            "go",
            "goroutine 1 [running]:",
            'package main\nimport "os"\n'
            'func main() { data, _ := os.ReadFile("output.txt"); os.Stderr.Write(data); os.Exit(2) }',
        ),
        (
            "java",
            'Exception in thread "main" java.lang.OutOfMemoryError',
            "import java.nio.file.*; public class Main { public static void main(String[] a) throws Exception {"
            ' for (String line : Files.readAllLines(Path.of("output.txt"))) System.err.println(line + " is wrong");'
            " System.exit(1); } }",
        ),
    ],
)
async def test_echoed_report_is_no_error_of_a_checker_in(here: Judge, language: str, report: str, echo: str) -> None:
    await here.needs(language)
    checker = with_checker(echo, language, memory_mb=256)
    found = await here.result(f"print({report!r})", tests=[case("", "5")], checker=checker)
    assert (found["verdict"], found["points"]) == ("WRONG_ANSWER", 0), found


async def test_long_output_that_is_echoed_is_no_error_of_the_checker(here: Judge) -> None:
    source = "import os, sys; os.write(1, b'\\xff' * 60_000)"
    checker = with_checker("import sys; print('wrong', open('output.txt', 'rb').read()); sys.exit(1)")
    found = await here.result(source, tests=[case("", "5")], checker=checker)
    assert (found["verdict"], len(found["results"][0]["message"])) == ("WRONG_ANSWER", 1000)


async def test_checker_of_the_documentation_rejects_what_is_no_text(here: Judge) -> None:
    document = (Path(__file__).parents[2] / "docs/howto/judging.md").read_text()
    checker = with_checker(document.split("```python\n")[1].split("```")[0])
    for source, verdict in (("import os; os.write(1, b'\\xff')", "WRONG_ANSWER"), ("print('b a')", "ACCEPTED")):
        assert (await here.result(source, expected_output="a b", checker=checker))["verdict"] == verdict


async def test_echoed_output_takes_no_points_below_the_first_line(here: Judge) -> None:
    checker = with_checker("print('points 0.5'); print(open('output.txt').read())")
    found = await here.result("print('points 0.1')", tests=[case("", "", points=4)], checker=checker)
    assert (found["points"], found["results"][0]["message"]) == (2, "points 0.1")
    checker = with_checker("print('read:'); print(open('output.txt').read())")
    found = await here.result("print('points 0.1')", tests=[case("", "", points=4)], checker=checker)
    assert (found["verdict"], found["points"]) == ("ACCEPTED", 4)


@pytest.mark.parametrize(
    ("code", "says", "verdict", "points"),
    [
        (0, "ok 5 numbers", "ACCEPTED", 4),
        (1, "wrong answer 1st numbers differ", "WRONG_ANSWER", 0),
        (2, "wrong output format Unexpected end of file", "WRONG_ANSWER", 0),
        (3, "FAIL Unexpected end of file (answer)", "CHECKER_ERROR", 0),
        (7, "points 0.25 three of twelve", "WRONG_ANSWER", 1),
        (7, "points 0.25\\npoints 1", "WRONG_ANSWER", 1),
        (7, "points 1", "ACCEPTED", 4),
        (7, "points 40", "CHECKER_ERROR", 0),
        (7, "partially correct", "CHECKER_ERROR", 0),
        (1, "points 1", "WRONG_ANSWER", 0),
    ],
)
async def test_exit_codes_of_testlib(here: Judge, code: int, says: str, verdict: str, points: int) -> None:
    """As testlib ends a checker: a code, and the outcome in stderr."""
    await here.needs("c")
    source = f'#include <stdio.h>\nint main(void) {{ fprintf(stderr, "{says}\\n"); return {code}; }}'
    found = await here.result("print(1)", tests=[case("", "", points=4)], checker=with_checker(source, "c"))
    assert (found["verdict"], found["points"]) == (verdict, points), found


async def test_points_of_both_streams_are_the_smaller_ones(here: Judge) -> None:
    """A checker gives points in one stream and repeats what it read in the other."""
    for shown, stated in (("stdout", "stderr"), ("stderr", "stdout")):
        source = f"import sys; sys.{shown}.write('points 1\\n'); sys.{stated}.write('points 0.5\\n'); sys.exit(7)"
        found = await here.result("print(1)", tests=[case("", "", points=4)], checker=with_checker(source))
        assert (found["verdict"], found["points"]) == ("WRONG_ANSWER", 2)


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
        ({"tests": []}, "/tests"),
        ({"tests": [{}], "input": "a"}, "/input"),
        ({"tests": [{"limits": {"time_seconds": 99}}]}, "/tests/0/limits/time_seconds"),
        ({"tests": [{"input": "a", "input_base64": "YQ=="}]}, "/tests/0/input_base64"),
        ({"comparison": "fuzzy"}, "/comparison"),
        ({"tolerance": -1, "comparison": "numbers"}, "/tolerance"),
        ({"tolerance": 0.1}, "/tolerance"),
        ({"tolerance": 0.1, "comparison": "tokens"}, "/tolerance"),
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
    response = await here.client.post("/execute/many", params={"wait": 60}, json={"programs": programs})
    items = response.json()["items"]
    assert response.status_code == 200, response.text
    assert [item["result"]["verdict"] for item in items] == ["ACCEPTED", "OK", "RUNTIME_ERROR"]
    assert len({item["job_id"] for item in items}) == 3
    bad = await here.client.post("/execute/many", json={"programs": [programs[0], {**programs[1], "language": "x"}]})
    assert (bad.status_code, bad.json()["errors"][0]["pointer"]) == (422, "/programs/1/language")

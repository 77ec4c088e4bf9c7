"""`jobyard workflows` and `jobyard signal`: files, runs, and their live view on terminals of several sizes."""

from __future__ import annotations

import io
import json
import re
import signal
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from rich.console import Console
from tests.cli.support import Shop, error_code, shop

from jobyard.api.schemas.workflows import WorkflowItemCounts, WorkflowRunView, WorkflowStepView
from jobyard.cli.render.workflow import WorkflowLinePrinter, picture, shown_steps
from jobyard.domain.job import State
from jobyard.domain.workflow_files.step_state import StepStatus

__all__ = ["shop"]

APP = """
from jobyard import WorkflowContext

@yard.job(max_attempts=1)
async def double(n: int) -> int:
    if n > 99:
        raise ValueError("too much")
    return 2 * n

@yard.workflow
async def order(ctx: WorkflowContext) -> object:
    return await ctx.wait_for("approved")

def pay(amount: int) -> str:
    return "paid " * amount

def refuse() -> None:
    raise ValueError("no connection")

@yard.workflow(max_attempts=1)
async def refunded(ctx: WorkflowContext) -> None:
    await ctx.compensate(refuse, name="refund", retry=0)
    await ctx.step(pay, 30)
    await ctx.run(double.call(2))
    await ctx.wait_for("approved")
    raise ValueError("closed")
"""
SUM: dict[str, Any] = {
    "id": "numbers",
    "version": 2,
    "description": "Doubles numbers.",
    "params": {
        "list": {"type": "array", "description": "The numbers."},
        "label": {"type": "string", "default": "none"},
    },
    "steps": [
        {"id": "all", "kind": "double", "for_each": "${params.list}", "input": {"n": "${item}"}},
        {"id": "last", "kind": "double", "needs": ["all"], "input": {"n": 50}},
    ],
    "on_failure": [{"id": "alert", "kind": "double", "input": {"n": 1}}],
    "output": {"doubled": "${steps.all.output}", "label": "${params.label}"},
}


@pytest.fixture
def files(shop: Shop) -> Shop:
    path = shop.folder / f"{shop.module}.py"
    path.write_text(path.read_text() + APP)
    write(shop, "numbers", SUM)
    return shop


def write(shop: Shop, name: str, document: dict[str, Any], folder: str = "workflows") -> Path:
    (shop.folder / folder).mkdir(exist_ok=True)
    path = shop.folder / folder / f"{name}.json"
    path.write_text(json.dumps(document))
    return path


def test_list_and_show(files: Shop) -> None:
    assert files.run("workflows", "list").stdout.splitlines()[1].split("\t") == [
        "numbers", "2", "-", "2", "list, label", "Doubles numbers."
    ]  # fmt: skip
    shown = files.run("workflows", "show", "numbers").stdout
    assert "list\tarray\trequired\tThe numbers." in shown
    assert "last\tdouble\tall" in shown
    assert "alert (on failure)\tdouble" in shown
    assert files.json("workflows", "show", "numbers")["params"]["required"] == ["list"]
    result = files.run("workflows", "show", "numbrs")
    assert error_code(result) == "unknown_workflow"
    assert 'Did you mean "numbers"?' in result.stderr


def test_check_lists_every_problem_of_every_file(files: Shop) -> None:
    assert files.run("workflows", "check").stdout == "1 valid workflow in workflows, 0 problems.\n"
    broken = write(files, "broken", {"id": "broken", "steps": [{"id": "a", "kind": "dubble"}, {"id": "a", "kid": "x"}]})
    other = write(files, "other", {"id": "other", "platform": "ably", "steps": [{"id": "a", "kind": "order"}]})
    result = files.run("workflows", "check")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert 'workflows/broken.json: /steps/0/kind: is "dubble"' in lines[0]
    assert any("workflows/broken.json: /steps/1/kid: is an unknown key." in line for line in lines)
    assert any('workflows/other.json: /platform: is unknown: "ably"' in line for line in lines)
    assert any('workflows/other.json: /steps/0/kind: is "order"' in line for line in lines)  # a workflow is no step
    assert lines[-1].startswith("1 valid workflow in workflows, ")
    assert files.run("workflows", "check", "workflows").stdout.splitlines()[:-1] == lines[:-1]
    one = files.run("workflows", "check", str(broken), "--json")
    assert (one.exit_code, json.loads(one.stdout)["workflows"]) == (1, [])
    listed = files.run("workflows", "list")
    assert listed.stdout.count("\n") == 2
    assert "run jobyard workflows check" in listed.stderr
    files.run("enqueue", "double", "n=1")  # makes the store
    for command in ("check", "doctor"):
        report = files.run(command)
        assert report.exit_code == 1
        assert 'fail workflow: workflows/broken.json: /steps/0/kind: is "dubble"' in report.output
    broken.unlink()
    other.unlink()
    assert "numbers (workflows/numbers.json, 2 steps)" in files.run("check").output


@pytest.mark.parametrize("command", ["worker", "server", "up"])
def test_an_invalid_file_is_not_loaded_and_keeps_nothing_from_starting(files: Shop, command: str) -> None:
    write(files, "broken", {"id": "broken", "steps": [{"id": "a", "kind": "dubble"}, {"id": "a", "kid": "x"}]})
    words = {"worker": (), "server": ("--insecure", "--port", "0"), "up": ("--insecure", "--port", "0")}[command]
    with files.start(command, *words) as process:
        assert process.stderr is not None
        said = ""
        while (found := re.search(r"up at (http://[\d.]+:\d+)|worker \S+ started", said)) is None:
            line = process.stderr.readline()
            assert line, said
            said += line
        for problem in ('/steps/0/kind: is "dubble"', "/steps/1/kid: is an unknown key."):
            assert f"ERROR   jobyard.workflow: workflow file not loaded: workflows/broken.json: {problem}" in said
        if command == "worker":
            return
        assert process.stdout is not None
        warning = "Invalid and therefore not loaded: workflows/broken.json; jobyard workflows check says why."
        while (line := process.stdout.readline()) != f"{warning}\n":
            assert line
        with httpx.Client(base_url=str(found[1]), timeout=60) as caller:
            url = "/api/v2/workflows/execute"
            refused = caller.post(url, json={"workflow_id": "broken"})
            assert (refused.status_code, "unknown_workflow" in refused.text) == (404, True)
            assert warning in refused.text
            assert caller.post(url, json={"workflow_id": "numbers", "params": {"list": [1]}}).status_code == 202
            ready = caller.get("/readyz?verbose").json()
            [check] = [each for each in ready["checks"] if each["name"] == "workflow_files"]
            assert check["ok"]
            assert check["reason"] == "1 workflow file not loaded: jobyard workflows check says why."


def test_check_compares_inputs_with_the_parameters_of_handlers(files: Shop) -> None:
    write(files, "typo", {"id": "typo", "steps": [{"id": "a", "kind": "double", "input": {"number": 1}}]})
    result = files.run("workflows", "check")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[:2] == [
        "workflows/typo.json: /steps/0/input: needs n, a parameter of double(n). Add it to the input.",
        "workflows/typo.json: /steps/0/input/number: is not a parameter of double(n). Remove it.",
    ]


def test_the_folder_is_a_setting(files: Shop) -> None:
    write(files, "numbers", SUM | {"id": "elsewhere"}, "flows")
    result = files.run("workflows", "list", JOBYARD_WORKFLOWS__FOLDER="flows")
    assert result.stdout.splitlines()[1].startswith("elsewhere\t")
    (files.folder / "jobyard.yaml").write_text("workflows: {folder: nowhere}\nplatforms: [ably]\n")
    result = files.run("workflows", "list")
    assert error_code(result) == "configuration"
    assert "Cannot read the workflow folder nowhere" in result.stderr
    (files.folder / "jobyard.yaml").write_text("platforms: [ably]\n")
    write(files, "numbers", SUM | {"platform": "ably"})
    job_id = files.json("workflows", "run", "numbers", "-p", "list=[]", "--no-wait")["job_id"]
    assert files.json("jobs", "show", job_id)["queue"] == "ably"
    assert files.json("workflows", "show", job_id)["platform"] == "ably"


def test_a_run_that_is_not_waited_for(files: Shop) -> None:
    (files.folder / "params.json").write_text('{"list": [1, 2], "label": "file"}')
    options = ("--params", "params.json", "-p", "label=007", "--priority", "3")
    job_id = files.run("workflows", "run", "numbers", *options, "--no-wait").stdout.strip()
    waiting = files.json("workflows", "show", job_id)
    assert (waiting["params"], waiting["priority"]) == ({"list": [1, 2], "label": "007"}, 3)
    files.work_off()
    done = files.json("workflows", "show", job_id[:14])
    assert (done["state"], done["output"]) == ("COMPLETED", {"doubled": [2, 4], "label": "007"})
    shown = files.run("workflows", "show", job_id).stdout.splitlines()
    assert shown[0].startswith(f"numbers {job_id}  COMPLETED  on default")
    assert shown[1] == "100%  2 of 2 steps"
    assert shown[3].split("\t")[1:4] == ["all", "double", "completed"]
    assert shown[3].split("\t")[5] == "2/2"
    page = files.run("jobs", "show", job_id).stdout
    assert "✓ last attempt 1, passed" in page
    assert '"text"' not in page


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("-p", "list=5"), "bad_option"),
        (("-p", "list=[]", "-p", "lable=x"), "bad_option"),
        ((), "bad_option"),
        (("-p", "list=[]", "--platform", "ably"), "bad_option"),
        (("--params", "absent.json"), "bad_input"),
        (("-p", "list"), ""),
        (("-p", "list=[]", "-p", "list=[1]"), ""),
    ],
)
def test_a_run_that_is_refused(files: Shop, words: tuple[str, ...], code: str) -> None:
    result = files.run("workflows", "run", "numbers", *words, "--no-wait")
    assert (result.exit_code, error_code(result)) == (1 if code else 2, code)
    assert not (files.folder / "shop.db").exists() or files.json("jobs", "list")["jobs"] == []


def test_a_run_is_followed_line_by_line(files: Shop) -> None:
    with files.start("worker"):
        result = files.run("workflows", "run", "numbers", "-p", "list=[1,2]")
        lines = result.stdout.splitlines()
        assert result.exit_code == 0, result.output
        assert [re.sub(r" in [\d.]+s", "", line) for line in lines if "completed" in line] == [
            "all completed", "last completed"
        ]  # fmt: skip
        assert json.loads(lines[-1]) == {"doubled": [2, 4], "label": "none"}
        failed = files.run("workflows", "run", "numbers", "-p", "list=[100]")
        assert failed.exit_code == 1
        assert "all failed" in failed.stdout
        assert "alert completed" in failed.stdout
        assert "is FAILED: Step all failed: Item 0: ValueError: too much" in failed.stderr
        document = json.loads(files.run("workflows", "run", "numbers", "-p", "list=[]", "--json").stdout)
        assert (document["state"], len(document["steps"])) == ("COMPLETED", 3)


@pytest.mark.parametrize(("columns", "lines"), [("60", "12"), ("200", "50")])
def test_a_run_is_redrawn_on_a_terminal(files: Shop, columns: str, lines: str) -> None:
    size = {"COLUMNS": columns, "LINES": lines}
    with files.on_terminal("workflows", "run", "numbers", "-p", "list=[1,2,3]", **size) as terminal:
        terminal.expect("No live worker takes queue default.")
        terminal.expect("pending")
        with files.start("worker"):
            terminal.expect("COMPLETED")
            assert terminal.end() == 0
    assert "3/3" in terminal.seen
    assert "\x1b[1A" in terminal.seen  # it moves up to redraw
    assert '{"doubled":[2,4,6],"label":"none"}' in terminal.seen


def test_ctrl_c_ends_the_command_and_not_the_run(files: Shop) -> None:
    with files.on_terminal("workflows", "run", "numbers", "-p", "list=[7]") as terminal:
        terminal.expect("pending")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 130
    found = re.search(r"jobyard workflows show (\S+)", terminal.seen)
    assert found is not None
    files.work_off()
    assert files.json("workflows", "show", found[1])["output"]["doubled"] == [14]


def test_graphs(files: Shop) -> None:
    image = files.run("workflows", "graph", "numbers").stdout
    assert image.startswith("<svg ")
    assert image == files.run("workflows", "graph", "workflows/numbers.json").stdout
    job_id = files.run("workflows", "run", "numbers", "-p", "list=[100]", "--no-wait").stdout.strip()
    files.work_off()
    assert files.run("workflows", "show", job_id).stdout.splitlines()[2] == "0%  0 of 2 steps"
    result = files.run("workflows", "graph", job_id, "--output", "run.svg")
    assert result.stdout == "Wrote run.svg.\n"
    assert "all, failed" in (files.folder / "run.svg").read_text()
    assert error_code(files.run("workflows", "graph", "absent")) == "unknown_workflow"
    assert error_code(files.run("workflows", "graph", "numbers", "-o", "no/such.svg")) == "bad_input"


def test_signal_and_what_a_parked_workflow_waits_for(files: Shop) -> None:
    job_id = files.enqueue("order")
    files.work_off()
    explained = files.run("explain", job_id).stdout
    assert re.search(r"Waits for signal approved since \d{4}-.*Z;", explained)
    assert "waits_for_signal" in explained
    assert "parked        Waits for signal approved since" in files.run("jobs", "show", job_id).stdout
    broken = files.run("signal", job_id, "approved", "--data", "{by: ann}")  # the shell took the quotation marks
    assert error_code(broken) == "payload_not_json"
    sent = files.run("signal", job_id, "approved", "--data", '{"by": "ann"}', "--id", "one")
    assert sent.stdout == "The signal woke the job.\n"
    assert files.json("signal", job_id[:14], "approved", "--id", "one") == {"job_id": job_id, "woke": False}
    files.work_off()
    assert files.json("jobs", "show", job_id)["result"] == {"by": "ann"}
    assert error_code(files.run("signal", job_id, "approved")) == "not_possible"
    assert error_code(files.run("signal", job_id, "")) == "bad_option"


def test_the_history_of_a_workflow_function(files: Shop) -> None:
    job_id = files.enqueue("refunded")
    files.work_off()
    assert f"jobyard workflows show {job_id}" in files.run("jobs", "show", job_id).stdout
    first, waits, headings, *rows = files.run("workflows", "show", job_id[:14]).stdout.splitlines()
    assert first.startswith(f"refunded {job_id}  PENDING")
    assert waits.startswith("Waits for signal approved since ")
    assert headings == "\toperation\tstate\tat\ttime\tresult"
    cells = [row.split("\t") for row in rows]
    assert [(row[1], row[2]) for row in cells] == [
        ("compensate refund", "registered"),
        ("step pay", "completed"),
        ("run double", "completed"),
        ("wait_for approved", "waiting"),
    ]
    assert cells[1][5] == '"' + ("paid " * 30)[:59] + "…"
    assert cells[2][5].startswith("job ")
    files.run("signal", job_id, "approved", "--data", '{"by": "ann"}')
    files.work_off()
    text = files.run("workflows", "show", job_id).stdout
    reason = "closed; undo step refund failed: ValueError: no connection"
    assert text.splitlines()[1] == f"ValueError: {reason}"
    assert reason in files.run("dead").stdout + files.run("jobs", "show", job_id).stdout
    assert [row.split("\t")[1:3] for row in text.splitlines()[-2:]] == [
        ["wait_for approved", "completed"],
        ["undo refund", "failed"],
    ]
    found = files.json("workflows", "show", job_id)
    assert (found["job"]["id"], found["history"][0]["name"]) == (job_id, "refund")
    plain = files.run("workflows", "show", files.enqueue("double", {"n": 1}))
    assert error_code(plain) == "job_not_found"


def test_a_parked_workflow_that_is_cancelled_is_not_called_running(files: Shop) -> None:
    job_id = files.enqueue("order")
    files.work_off()
    assert files.run("jobs", "cancel", job_id).stdout == "Asked to end: 1 parked workflow.\n"


def test_all_params_that_are_wrong_are_named_at_once(files: Shop) -> None:
    result = files.run("workflows", "run", "numbers", "-p", "list=5", "-p", "lable=x", "--no-wait")
    assert result.exit_code == 1
    assert "params.list " in result.stderr
    assert "params.lable " in result.stderr


def run_view(*steps: WorkflowStepView) -> WorkflowRunView:
    return WorkflowRunView(
        job_id="01a1ed56-5c84-753e-bd08-55bda465b344",
        workflow_id="scan[bold]",
        version=1,
        digest="",
        platform="ably",
        state=State.RUNNING,
        attempt=1,
        priority=0,
        params={},
        created_at="",
        started_at=None,
        finished_at=None,
        elapsed_seconds=75.0,
        progress=None,
        steps=steps,
        output=None,
        reason=None,
        cancel_requested=None,
    )


def step_view(name: str, status: StepStatus, **more: Any) -> WorkflowStepView:
    return WorkflowStepView(id=name, kind="scan_url", status=status, on_failure=False, **more)


@pytest.mark.parametrize(("width", "height"), [(40, 10), (80, 24), (200, 60)])
def test_the_picture_fits_any_terminal(width: int, height: int) -> None:
    items = WorkflowItemCounts(total=1000, ended=250, failed=3)
    steps = [
        *(step_view(f"done-{number}", StepStatus.COMPLETED, elapsed_seconds=1.0) for number in range(50)),
        step_view("scan", StepStatus.RUNNING, items=items, elapsed_seconds=9.0),
        step_view("render", StepStatus.RUNNING, percent=40.0, message="page \x1b[2J" + "x" * 300, attempts=2),
        step_view("bad", StepStatus.FAILED, reason="KeyError: 'price'"),
        *(step_view(f"later-{number}", StepStatus.PENDING) for number in range(50)),
    ]
    output = io.StringIO()
    console = Console(file=output, width=width, height=height, force_terminal=True, color_system=None)
    console.print(picture(run_view(*steps), console, "No live worker takes queue ably."))
    lines = output.getvalue().splitlines()
    assert len(lines) <= height
    assert max(len(line) for line in lines) <= width
    text = "\n".join(lines)
    assert "scan[bold]"[: width - 2] in text
    assert "\x1b[2J" not in text
    assert "▶ scan" in text
    assert "✗ bad" in text
    assert "…" in text
    if width >= 80:
        assert "███░░░░░░░░░ 250/1,000, 3 failed" in text
        assert "attempt 2" in text


def test_hidden_steps_are_the_least_important_and_the_order_stays() -> None:
    steps = [step_view(name, status) for name, status in zip("abcdef", StepStatus, strict=True)]
    assert [step.id for step in shown_steps(steps, 3)] == ["b", "d", "f"]  # running, failed, interrupted
    assert shown_steps(steps, 6) == steps


def test_lines_say_each_change_once(capsys: pytest.CaptureFixture[str]) -> None:
    show = WorkflowLinePrinter()
    for status in (StepStatus.PENDING, StepStatus.RUNNING, StepStatus.RUNNING, StepStatus.COMPLETED):
        show(run_view(step_view("a", status, elapsed_seconds=1.5)), "It waits." if status is StepStatus.PENDING else "")
    assert capsys.readouterr().out == "It waits.\na running\na completed in 1.5s\n"


def test_terminal_escapes_of_a_file_are_shown_and_not_obeyed(files: Shop) -> None:
    write(files, "evil", SUM | {"id": "evil", "description": "\x1b[2J[red]x"})
    for words in (("workflows", "list"), ("workflows", "show", "evil")):
        output = files.run(*words).stdout
        assert "\x1b" not in output
        assert r"\x1b[2J[red]x" in output


def test_reading_files_makes_no_store(files: Shop) -> None:
    for words in (("list",), ("show", "numbers"), ("check",), ("graph", "numbers")):
        assert files.run("workflows", *words).exit_code == 0
    assert not (files.folder / "shop.db").exists()

"""Descriptions of the fields that only programs, their tests and their languages have; see `descriptions`."""

from __future__ import annotations

EXECUTE_FIELDS = {
    "base64": "More standard input as base64, instead of `text`.",
    "checker": "A program that decides whether an output is accepted, instead of a comparison.",
    "comparison": "How the output is compared with the expected one.",
    "compile": "Options and limits of the compiler.",
    "compile_options": "Compiler options that requests may use.",
    "end": "Whether standard input is closed after this.",
    "example": "A first program in this language.",
    "expected_output": "The output that is accepted; null accepts any.",
    "extensions": "File name extensions of the language.",
    "interactive": "Whether standard input stays open for `POST /jobs/{job_id}/input`.",
    "max_compile_memory_mb": "The most memory that a request may allow the compiler, in MB.",
    "max_compile_seconds": "The longest time that a request may allow the compiler.",
    "merge_stderr": "Whether standard error is written into stdout, in order.",
    "CompileRequest.options": "Compiler options, of those that the language allows.",
    "points": "Points of the test case if it is accepted.",
    "programs": "Programs to run, each with a job of its own.",
    "runs": "How many times each input is run; the figures are medians.",
    "WebhookRequest.secret": "Signs the message; null: the secret of the server.",
    "ProgramSignalRequest.signal": "The signal to send to the program.",
    "stop_at_first_failure": "Whether the cases after the first that is not accepted are skipped.",
    "tests": "Test cases, run one after the other.",
    "tolerance": "Largest difference of two numbers that count as equal, for comparison by numbers.",
    "webhook": "Where to send the result when the program has ended.",
}

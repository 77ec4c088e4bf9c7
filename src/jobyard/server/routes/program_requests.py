"""Programs from the bodies of requests: conversion, and checks against bounds and against the offered languages."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jobyard.api.schemas import execute as schemas
from jobyard.api.schemas.problems import FieldError
from jobyard.errors import did_you_mean
from jobyard.executors.sandbox.bounds import MINIMUMS, BoundsViolation, names, violations
from jobyard.executors.sandbox.program import Checker, Comparison, Program, TestCase
from jobyard.operations.sandboxes import best_languages, why_unavailable
from jobyard.operations.webhooks.address import ForbiddenAddress, check_url
from jobyard.operations.webhooks.signature import BadSecret, key_of
from jobyard.sandbox.protocol import CompileLimits, File, Language, Limits, Tier, option_matches
from jobyard.server.dependencies import Dependencies
from jobyard.server.problems import HttpError

# Names that a language has elsewhere; file extensions are understood, too.
OTHER_NAMES = {"c++": "cpp", "g++": "cpp", "gcc": "c", "node": "javascript", "nodejs": "javascript", "golang": "go"}
NO_FOLDER = "The sandbox runs in tier C, which has no working folder for files."


def single_program(body: schemas.ExecuteRequest) -> Program:
    """The program of POST /execute."""
    if body.tests:
        given = [name for name in ("input", "input_base64", "expected_output") if getattr(body, name)]
        if given:
            raise invalid_body([FieldError(f"/{given[0]}", "Pass tests or this, not both.")])
    if body.tolerance is not None and body.comparison is not Comparison.NUMBERS:
        raise invalid_body([FieldError("/tolerance", 'Only allowed with "comparison": "numbers".')])
    program = program_of(body, (standard_input(body, ""),))
    return msgspec.structs.replace(
        program,
        tests=tuple(case_of(case, program.limits, number) for number, case in enumerate(body.tests)),
        expected=None if body.expected_output is None else body.expected_output.encode(),
        comparison=body.comparison,
        tolerance=program.tolerance if body.tolerance is None else body.tolerance,
        checker=None if body.checker is None else checker_of(body.checker),
        stop_at_first_failure=body.stop_at_first_failure,
        interactive=body.interactive,
    )


def program_of(body: schemas.ProgramRequest, inputs: tuple[bytes, ...], *, is_batch: bool = False) -> Program:
    both = [number for number, file in enumerate(body.files) if file.content and file.content_base64 is not None]
    if both:
        at = f"/files/{both[0]}/content_base64"
        raise invalid_body([FieldError(at, "Pass content or content_base64, not both.")])
    given = body.compile
    return Program(
        language=body.language,
        source=body.source_code,
        inputs=inputs,
        is_batch=is_batch,
        args=body.args,
        files=tuple(file_of(file) for file in body.files),
        collect=body.collect,
        limits=limits_of(body.limits),
        runs=body.runs,
        merge_stderr=body.merge_stderr,
        compile_options=given.options,
        compile_limits=CompileLimits(time_seconds=given.time_seconds, memory_mb=given.memory_mb),
    )


def standard_input(body: schemas.ExecuteRequest | schemas.TestRequest, at: str) -> bytes:
    if body.input and body.input_base64 is not None:
        raise invalid_body([FieldError(f"{at}/input_base64", "Pass input or input_base64, not both.")])
    return body.input.encode() if body.input_base64 is None else body.input_base64


def limits_of(limits: schemas.LimitsRequest) -> Limits:
    return Limits(**{name: getattr(limits, name) for name in Limits.__struct_fields__})


def case_of(case: schemas.TestRequest, limits: Limits, number: int) -> TestCase:
    own = {name: value for name, value in msgspec.structs.asdict(case.limits).items() if value is not None}
    return TestCase(
        name=case.name,
        stdin=standard_input(case, f"/tests/{number}"),
        expected=None if case.expected_output is None else case.expected_output.encode(),
        points=case.points,
        limits=msgspec.structs.replace(limits, **own) if own else None,
    )


def checker_of(checker: schemas.CheckerRequest) -> Checker:
    return Checker(language=checker.language, source=checker.source_code, limits=limits_of(checker.limits))


def file_of(file: schemas.FileRequest) -> File:
    return File(name=file.name, data=file.content.encode() if file.content_base64 is None else file.content_base64)


# Checks


async def require_valid(dependencies: Dependencies, program: Program, webhook: schemas.WebhookRequest | None) -> None:
    """Raises HttpError with every invalid field, or because no sandbox can run the program."""
    invalid = [field_error(each, program) for each in violations(program, dependencies.bounds)]
    invalid += webhook_errors(dependencies, webhook)
    if invalid:
        raise invalid_body(invalid)
    language = await require_language(dependencies, program.language, "/language")
    if language is not None:
        invalid += language_errors(program, *language)
    if program.checker is not None:
        found = await require_language(dependencies, program.checker.language, "/checker/language")
        if found is not None and found[1] is Tier.C:
            invalid.append(FieldError("/checker", NO_FOLDER))
    if invalid:
        raise invalid_body(invalid)


def webhook_errors(dependencies: Dependencies, webhook: schemas.WebhookRequest | None) -> list[FieldError]:
    if webhook is None:
        return []
    try:
        check_url(webhook.url, allow_private=dependencies.webhooks_to_private)
        secret = webhook.secret or dependencies.webhook_secret
        if secret is None:
            return [FieldError("/webhook/secret", "Required: the server has no secret of its own to sign with.")]
        key_of(secret)
    except ForbiddenAddress as error:
        return [FieldError("/webhook/url", str(error))]
    except BadSecret as error:
        return [FieldError("/webhook/secret", str(error))]
    return []


async def require_language(dependencies: Dependencies, name: str, at: str) -> tuple[Language, Tier] | None:
    """The language, if a live worker offers it. While there is no sandbox at all, programs wait: None."""
    sandboxes = dependencies.sandboxes
    found = await sandboxes.language(name)
    if found is not None:
        return found
    known = await sandboxes.known()
    offered = best_languages(known)
    if not offered:
        if dependencies.rejects_without_sandbox:
            raise HttpError(503, "sandbox_unavailable", why_unavailable(known), headers={"Retry-After": "5"})
        return None
    if any(name in info.checking for info in known):
        return None  # its self-test runs: the program waits for the end of it
    same = OTHER_NAMES.get(name.lower(), name)
    usual = [each for each, (language, _) in offered.items() if each == same or f".{same}" in language.extensions]
    hint = f' Did you mean "{usual[0]}"?' if usual else did_you_mean(name, offered)
    why = f"No live worker runs {name}. Available: {', '.join(offered)}.{hint}"
    raise invalid_body([FieldError(at, why)])


def language_errors(program: Program, language: Language, tier: Tier) -> list[FieldError]:
    """What this language or its tier does not allow."""
    if tier is Tier.C and (program.files or program.collect):
        return [FieldError("/files" if program.files else "/collect", NO_FOLDER)]
    own = names(tuple(file.name for file in program.files), "files", len(program.files), language.own_files)
    found = [FieldError(f"/files/{each.where[1]}/name", each.why) for each in own]
    for number, option in enumerate(program.compile_options):
        if not any(option_matches(option, allowed) for allowed in language.compile_options):
            words = " ".join(language.compile_options)
            allowed = f"Allowed for {language.name}: {words}" if words else f"{language.name} has no compiler options"
            found.append(FieldError(f"/compile/options/{number}", f"{option!r} is not allowed. {allowed}."))
    given = program.compile_limits
    for name, value, low, most in (
        ("time_seconds", given.time_seconds, MINIMUMS["time_seconds"], language.max_compile_seconds),
        ("memory_mb", given.memory_mb, MINIMUMS["memory_mb"], language.max_compile_memory_mb),
    ):
        if value is not None and most is not None and not low <= value <= most:
            found.append(FieldError(f"/compile/{name}", f"Must be a number from {low:g} to {most:g}."))
    return found


def field_error(violation: BoundsViolation, program: Program) -> FieldError:
    """The violation with the field names of the request."""
    first, *rest = map(str, violation.where)
    if first == "inputs" and not program.is_batch:
        return FieldError("/input", violation.why)
    return FieldError("/".join(("", "source_code" if first == "source" else first, *rest)), violation.why)


def invalid_body(errors: Sequence[FieldError]) -> HttpError:
    return HttpError(422, "bad_input", f"Invalid body: {errors[0].detail}", errors=tuple(errors))

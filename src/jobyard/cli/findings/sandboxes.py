"""Findings about the sandboxes of workers and of a configured daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator

from jobyard.config.sections import SandboxSection
from jobyard.executors.sandbox.client import SandboxClient, SandboxFault
from jobyard.operations.sandboxes import SandboxInfo, known_sandboxes, sandbox_info
from jobyard.ports.record_store import RecordStore
from jobyard.ports.store import Finding, Level

ANSWER_SECONDS = 5.0
ADVICE = "see jobyard sandbox status; sandbox.min_tier is the required tier"


async def sandbox_findings(records: RecordStore, section: SandboxSection) -> AsyncIterator[Finding]:
    """Nothing if no worker runs programs and no sandbox is configured."""
    known = await known_sandboxes(records)
    for info in known:
        for finding in one_sandbox(info, f"worker {info.worker}"):
            yield finding
    if section.enabled and not known:
        yield Finding(Level.WARN, "sandbox", "no live worker has a sandbox", "start one: jobyard worker --sandbox")
    if section.socket:
        for finding in one_sandbox(await _daemon_info(section.socket), f"the daemon at {section.socket}"):
            yield finding


async def _daemon_info(path: str) -> SandboxInfo:
    client = SandboxClient(path, connect_timeout_seconds=ANSWER_SECONDS)
    await client.start()
    try:
        return sandbox_info("", "", await client.ready_state(), "")
    except SandboxFault as refused:
        return sandbox_info("", "", client.state, refused.message)
    finally:
        await client.stop()


def one_sandbox(info: SandboxInfo, name: str) -> list[Finding]:
    if info.tier is None:
        why = f"{info.reason} {info.details}".strip()
        return [Finding(Level.FAIL, "sandbox", f"{name} runs no programs: {why}", ADVICE)]
    names = ", ".join(f"{language.name} ({language.version})" for language in info.languages) or "no language"
    why = f" ({info.reason})" if info.reason else ""
    found = [Finding(Level.OK, "sandbox", f"{name}: tier {info.tier}{why}, {info.slots} slots, {names}")]
    for language, reason in info.missing.items():
        message = f"{name} does not offer {language}: {reason}"
        found.append(Finding(Level.WARN, "sandbox", message, "install its tools"))
    return found

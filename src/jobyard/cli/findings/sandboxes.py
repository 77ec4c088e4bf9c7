"""What `jobyard doctor` finds out about running programs."""

from __future__ import annotations

from collections.abc import AsyncIterator

from jobyard.config.sections import SandboxSection
from jobyard.executors.sandbox.client import SandboxClient, SandboxFault
from jobyard.operations.sandboxes import SandboxInfo, known_sandboxes, sandbox_info
from jobyard.ports.record_store import RecordStore
from jobyard.ports.store import Finding, Level

ANSWER_SECONDS = 5.0
CURE = "jobyard sandbox status says more; sandbox.min_tier says what is asked for"


async def sandbox_findings(records: RecordStore, section: SandboxSection) -> AsyncIterator[Finding]:
    """Nothing where nobody runs programs."""
    known = await known_sandboxes(records)
    for info in known:
        for finding in one_sandbox(info, f"worker {info.worker}"):
            yield finding
    if section.enabled and not known:
        yield Finding(Level.WARN, "sandbox", "no live worker has told of one", "start one: jobyard worker --sandbox")
    if section.socket:
        for finding in one_sandbox(await _asked(section.socket), f"the daemon at {section.socket}"):
            yield finding


async def _asked(path: str) -> SandboxInfo:
    client = SandboxClient(path, connect_timeout_seconds=ANSWER_SECONDS)
    await client.start()
    try:
        return sandbox_info("", "", await client.ready_state(), "")
    except SandboxFault as refused:
        return sandbox_info("", "", client.state, refused.message)
    finally:
        await client.stop()


def one_sandbox(info: SandboxInfo, who: str) -> list[Finding]:
    if info.tier is None:
        why = f"{info.reason} {info.details}".strip()
        return [Finding(Level.FAIL, "sandbox", f"{who} runs no programs: {why}", CURE)]
    names = ", ".join(f"{language.name} ({language.version})" for language in info.languages) or "no language"
    why = f" ({info.reason})" if info.reason else ""
    found = [Finding(Level.OK, "sandbox", f"{who}: tier {info.tier}{why}, {info.slots} slots, {names}")]
    for name, reason in info.missing.items():
        found.append(Finding(Level.WARN, "sandbox", f"{who} does not offer {name}: {reason}", "install its tools"))
    return found

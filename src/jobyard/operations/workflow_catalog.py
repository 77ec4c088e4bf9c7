"""The workflow files of an application, and the jobs that run them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from jobyard.domain.access import Principal
from jobyard.domain.ids import new_id
from jobyard.domain.job import Job, NewJob
from jobyard.domain.job_options import DEFAULTS, with_options
from jobyard.domain.options import check_name
from jobyard.domain.platforms import EXTRACT, EXTRACT_KINDS, known_platforms, queue_for
from jobyard.domain.workflow_files.definition import WorkflowDefinition
from jobyard.domain.workflow_files.params import check_params, platform_of
from jobyard.errors import BadOption, PayloadTooLarge, UnknownWorkflow, did_you_mean
from jobyard.executors.python.payload import MAX_PAYLOAD_BYTES, to_json
from jobyard.executors.workflow.file_records import FILE_WORKFLOW, FilePayload

TAG = "workflow:"
# How many invalid files are named.
NAMED = 5


class WorkflowCatalog:
    """The definitions by id. `platforms` are those of the configuration, `invalid` the files that were not loaded."""

    def __init__(
        self,
        definitions: Mapping[str, WorkflowDefinition] | None = None,
        platforms: Iterable[str] = (),
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
        invalid: Sequence[str] = (),
    ) -> None:
        self.definitions = definitions or {}
        self._platforms = known_platforms(platforms)
        self._max_payload_bytes = max_payload_bytes
        self.invalid = tuple(invalid)

    @property
    def warning(self) -> str:
        """Which files were not loaded; empty if all were."""
        if not self.invalid:
            return ""
        named = ", ".join(self.invalid[:NAMED]) + (", …" if len(self.invalid) > NAMED else "")
        return f"Invalid and therefore not loaded: {named}; jobyard workflows check says why."

    def get(self, workflow_id: str) -> WorkflowDefinition:
        """Raises UnknownWorkflow."""
        definition = self.definitions.get(workflow_id)
        if definition is None:
            raise UnknownWorkflow.of(workflow_id, self.definitions, self.warning)
        return definition

    def new_job(
        self, workflow_id: str, params: Any = None, platform: str | None = None, priority: int | None = None
    ) -> NewJob:
        """The job of a run. Raises UnknownWorkflow, or BadInput with the names of invalid fields and without values."""
        definition = self.get(workflow_id)
        checked = check_params(definition, {} if params is None else params)
        chosen = self._platform(definition, checked, platform)
        payload = FilePayload(
            workflow_id=definition.id,
            version=definition.version,
            digest=definition.digest,
            text=definition.text,
            params=checked,
            platform=chosen,
            file=definition.file,
            format=definition.text_format,
        )
        given = {
            "queue": queue_of(self._platforms, definition.id, chosen),
            "priority": priority,
            "timeout": definition.timeout_seconds,
            "tags": (TAG + definition.id,),
        }
        try:
            data = to_json(payload, f"payload of workflow {definition.id}", self._max_payload_bytes)
        except PayloadTooLarge as error:
            error.option = "params"
            raise
        job = with_options(DEFAULTS, given).new_job(new_id(), FILE_WORKFLOW, data, None)
        return msgspec.structs.replace(job, is_workflow=True)

    def _platform(self, definition: WorkflowDefinition, params: dict[str, Any], given: str | None) -> str | None:
        """The platform of the request, else the one that the file and the params lead to."""
        if given is None:
            return platform_of(definition, params, self._platforms)
        check_name("platform", given)
        if given not in self._platforms and given not in EXTRACT_KINDS:
            known = ", ".join(self._platforms)
            hint = did_you_mean(given, self._platforms)
            raise BadOption(f"Unknown platform {given}. Known platforms: {known}.{hint}", option="platform")
        return given


def queue_of(platforms: Iterable[str], workflow_id: str, platform: str | None) -> str:
    """
    >>> queue_of(["ably", "extract", "default"], "scan", "ably"), queue_of(["ably"], "scan", "multi_platform")
    ('ably', 'extract')
    """
    return EXTRACT if platform in EXTRACT_KINDS else queue_for(list(platforms), workflow_id, platform)


def may_run(principal: Principal) -> bool:
    """Whether the token may run workflow files; one that is restricted to kinds must name theirs."""
    return not principal.kinds or FILE_WORKFLOW in principal.kinds


class _Payload(msgspec.Struct):
    workflow_id: str


_decode = msgspec.json.Decoder(_Payload).decode


def workflow_id_of(job: Job) -> str:
    """The workflow that a job runs, by its payload; its kind if there is none."""
    try:
        return _decode(job.payload).workflow_id
    except msgspec.DecodeError:
        return job.kind

"""`jobyard signal`: send a signal to a job."""

from __future__ import annotations

import click
import msgspec

from jobyard.cli.job_ids import whole_id
from jobyard.cli.session import Session, async_command
from jobyard.domain.options import check_name
from jobyard.errors import PayloadNotJson


@click.command()
@click.argument("job_id", metavar="JOB")
@click.argument("name")
@click.option("--data", metavar="JSON", default="null", help="JSON for the job, or text.")
@click.option("--id", "signal_id", metavar="ID", help="Idempotency key: a signal with a known id is ignored.")
@async_command
async def signal(session: Session, job_id: str, name: str, data: str, signal_id: str | None) -> None:
    """Send a signal to a job.

    It wakes the job, or is kept until the job waits for it. With --id the command is safe to repeat.

    \b
    Example:
      jobyard signal 01890a5d-ac96-774b-bcce-b302099a8057 approved --data '{"by": "ann"}'
      jobyard signal 01890a5d-ac96 approved --id order-4711
    """
    check_name("name", name)
    if signal_id is not None:
        check_name("--id", signal_id)
    encoded = _encoded(data)
    async with session.operations() as operations:
        whole = await whole_id(operations, job_id)
        woke = await operations.signal(whole, name, encoded, signal_id=signal_id)
    text = "The signal woke the job." if woke else "The job does not wait for it now; the signal is kept."
    session.report({"job_id": whole, "woke": woke}, text)


def _encoded(text: str) -> bytes:
    """
    >>> _encoded('{"by": "ann"}'), _encoded("yes")
    (b'{"by":"ann"}', b'"yes"')
    """
    try:
        value = msgspec.json.decode(text)
    except RecursionError as error:
        raise PayloadNotJson("Cannot send the signal: its data is nested too deeply.") from error
    except msgspec.DecodeError as error:
        if text.lstrip()[:1] in ("{", "[", '"'):
            # Almost certainly JSON with a mistake, such as quotation marks that the shell has removed.
            raise PayloadNotJson(f"Cannot send the signal: --data is not valid JSON: {error}.") from error
        value = text
    return msgspec.json.encode(value)

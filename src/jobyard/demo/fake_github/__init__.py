"""A fake of GitHub Enterprise Server for just-in-time runners.

Inside a process, and under a virtual clock: make a `FakeGitHub` with a `clock`, a `random.Random` and a `deliver`
function for webhooks, and send requests to `api.RestApi(github)`. Faults of REST calls happen there; faults of
webhooks and runners in the model.

By hand: `python -m jobyard.demo.fake_github --port 8123` prints its addresses. Then, with `C=http://127.0.0.1:8123/_control`:

    curl $C/organizations -d '{"login": "acme"}'
    curl $C/repositories -d '{"owner": "acme", "name": "web"}'
    curl $C/hooks -d '{"url": "http://127.0.0.1:8080/webhooks/github", "secret": "s3cret"}'
    curl $C/app                                    # App id, private key, and a token for /app calls
    curl $C/tokens -d '{"scopes": ["admin:org", "repo"]}'
    curl $C/runs -d '{"repository": "acme/web", "jobs": [{"labels": ["linux"], "duration": 5, "count": 3}]}'
    curl $C/run --data-binary "$ACTIONS_RUNNER_INPUT_JITCONFIG"    # a runner program: returns when its job has ended
    curl -X PUT $C/faults -d '{"webhook_dropped": 0.1, "lost_after": 0.05}'
    curl $C/state

A client of `/run` that disconnects counts as a killed runner. `/connect`, `/sessions/ID?wait=30`,
`/sessions/ID/kill` and `/sessions/ID/close` do the same in steps. `/runs/ID/` takes `cancel`, `rerun`,
`rerun-failed-jobs` and `fail-startup`, `/jobs/ID/` takes `cancel`, `approve` and `reject`; `/check-runs` and
`/null-events` send events that belong to no job.
"""

from __future__ import annotations

from jobyard.demo.fake_github.entities import Hook, Job, JobSpec, Owner, Repository, Run, Runner, RunnerGroup, Token
from jobyard.demo.fake_github.errors import ApiError, ConnectionLost, SessionRefused
from jobyard.demo.fake_github.model import FakeGitHub
from jobyard.demo.fake_github.sessions import Session
from jobyard.demo.fake_github.settings import Faults, Timings

__all__ = [
    "ApiError",
    "ConnectionLost",
    "FakeGitHub",
    "Faults",
    "Hook",
    "Job",
    "JobSpec",
    "Owner",
    "Repository",
    "Run",
    "Runner",
    "RunnerGroup",
    "Session",
    "SessionRefused",
    "Timings",
    "Token",
]

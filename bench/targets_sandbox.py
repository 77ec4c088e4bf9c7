"""What the speed of the code runner must be."""

from __future__ import annotations

from bench.target import Target

BARE, OURS = "sandbox/python3", "sandbox/jobyard"

SANDBOX_TARGETS = (
    Target(
        "first byte, warm pool: over the bare interpreter",
        f"{OURS}/start-pool",
        f"{BARE}/start",
        figure="p50_ms",
        at_most=0.2,
    ),
    Target(
        "first byte, on demand: over the bare interpreter",
        f"{OURS}/start-demand",
        f"{BARE}/start",
        figure="p50_ms",
        at_most=1,
    ),
    Target("first byte, a cached build of C: p50", f"{OURS}/start-compiled", figure="p50_ms", at_most=5, unit="ms"),
    *(
        Target(
            f"to the end, beside {words} in all other slots: over alone",
            f"{OURS}/neighbours-{kind}",
            figure="over_alone",
            at_most=3,
        )
        for kind, words in (("forks", "fork bombs"), ("memory", "memory bombs"), ("both", "bombs of both kinds"))
    ),
    Target("sustained, the sandbox alone", f"{OURS}/runs", at_least=300, unit="runs/s"),
    Target(
        "POST /execute?wait=5: p50 more than the bare interpreter takes to start and end",
        f"{OURS}/execute",
        figure="more_than_bare_ms",
        at_most=5,
        unit="ms",
    ),
    # For information.
    Target(
        "first byte, warm pool: over bubblewrap",
        f"{OURS}/start-pool",
        "sandbox/bubblewrap/start",
        figure="p50_ms",
    ),
    Target(
        "to the end, warm pool: over the bare interpreter",
        f"{OURS}/start-pool",
        f"{BARE}/start",
        figure="finished_p50_ms",
    ),
    Target("first byte, warm pool: p99", f"{OURS}/start-pool", figure="p99_ms", unit="ms"),
    Target("POST /execute?wait=5, 16 callers", f"{OURS}/execute-many", unit="runs/s"),
    Target("memory of an idle member of the pool", f"{OURS}/start-pool", figure="member_mb", unit="MB"),
)

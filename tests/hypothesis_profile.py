"""Settings of Hypothesis for properties: import it in the conftest of their folder."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.story.sizes import size

# Without a deadline and the check for slow data: on a busy machine they would fail a test for its time.
settings.register_profile(
    "properties",
    parent=settings.default,
    max_examples=size(50, 1000),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("properties")

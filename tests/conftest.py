"""What every test may ask for: real servers, started when first wanted."""

from __future__ import annotations

pytest_plugins = ["tests.servers.fixtures"]

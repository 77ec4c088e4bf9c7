"""The configuration of the server, without secrets, and where each value comes from."""

from __future__ import annotations

from jobyard.api.schemas.charts import ConfigurationView
from jobyard.domain.access import Permission
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("configuration")


@ROUTES.add("GET", "/v1/configuration", Permission.ADMINISTER, response=ConfigurationView)
async def get_configuration(context: RequestContext) -> ConfigurationView:
    """List the values of the configuration and their origins, without secrets."""
    if context.principal.has_scope:
        detail = "A token that is restricted to queues, groups or kinds cannot read the configuration."
        raise HttpError(403, "out_of_scope", detail)
    return ConfigurationView(context.dependencies.configuration)

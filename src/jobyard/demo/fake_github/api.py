"""The REST API of the fake, without sockets: one request in, one response out, with faults."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

from jobyard.demo.fake_github import account_routes, action_routes, runner_routes
from jobyard.demo.fake_github.auth import ANY, Authentication, Principal
from jobyard.demo.fake_github.calls import ApiRequest, ApiResponse, Call, Route, reply
from jobyard.demo.fake_github.entities import Owner
from jobyard.demo.fake_github.errors import ApiError, ConnectionLost, not_found
from jobyard.demo.fake_github.model import FakeGitHub
from jobyard.demo.fake_github.rate_limits import RateLimits

RATE_LIMIT = "/rate_limit"


class RestApi:
    """Raises `ConnectionLost` where a client would see its connection closed without a response."""

    def __init__(self, github: FakeGitHub) -> None:
        self.github = github
        self._authentication = Authentication(github)
        self._limits = RateLimits(github)
        self._routes = [
            (_pattern(route.template), route)
            for route in (
                *runner_routes.ROUTES,
                *action_routes.ROUTES,
                *account_routes.ROUTES,
                Route("GET", RATE_LIMIT, ANY, lambda call: self._limits.show(call.principal)),
            )
        ]

    async def request(self, request: ApiRequest) -> ApiResponse:
        core, faults = self.github.core, self.github.faults
        if core.hits("hanging"):
            await asyncio.Event().wait()
        if core.hits("slow"):
            await asyncio.sleep(core.rng.uniform(0.0, faults.slow_seconds))
        if core.hits("lost_before"):
            raise ConnectionLost
        if core.hits("server_error"):
            return self._finished(self._server_error())
        response = self._answer(request)
        if core.hits("lost_after"):
            raise ConnectionLost
        return self._finished(self._server_error() if core.hits("server_error_after") else response)

    def _answer(self, request: ApiRequest) -> ApiResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        limits: dict[str, str] = {}
        try:
            if not headers.get("user-agent"):
                raise ApiError(403, "Request forbidden by administrative rules. Send a User-Agent header.")
            principal = self._authentication.authenticate(headers.get("authorization"))
            if self.github.core.hits("unauthorized"):
                raise ApiError(401, "Bad credentials")
            try:
                self._limits.pretend()
                if request.path != RATE_LIMIT:
                    self._limits.count(principal)
            finally:
                limits = self._limits.headers(principal)
            response = self._dispatch(request, principal)
        except ApiError as error:
            response = reply(error.body(), error.status, error.headers)
        response.headers = {**limits, **response.headers}
        return response

    def _dispatch(self, request: ApiRequest, principal: Principal) -> ApiResponse:
        for pattern, route in self._routes:
            match = pattern.fullmatch(request.path)
            if match is None or route.method != request.method:
                continue
            params = match.groupdict()
            self._authentication.authorize(principal, route.access, self._owner(params))
            base_url = request.base_url or self.github.core.accounts_json.api
            call = Call(github=self.github, request=request, principal=principal, base_url=base_url, params=params)
            return route.handler(call)
        raise not_found()

    def _owner(self, params: Mapping[str, str]) -> Owner | None:
        login = params.get("org") or params.get("owner")
        return None if login is None else self.github.accounts.owner(login)

    def _server_error(self) -> ApiResponse:
        status = self.github.core.rng.choice((500, 502, 503, 504))
        return reply({"message": "Server Error"}, status)

    def _finished(self, response: ApiResponse) -> ApiResponse:
        core = self.github.core
        common = {
            "X-GitHub-Request-Id": f"{core.next_id('request'):08X}",
            "X-GitHub-Enterprise-Version": core.version,
            "X-GitHub-Media-Type": "github.v3; format=json",
        }
        if response.body:
            common["Content-Type"] = "application/json; charset=utf-8"
        response.headers = {**common, **response.headers}
        return response


def _pattern(template: str) -> re.Pattern[str]:
    """
    >>> _pattern("/orgs/{org}/repos").fullmatch("/orgs/acme/repos")["org"]
    'acme'
    """
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template))

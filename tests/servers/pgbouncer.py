"""A private PgBouncer. In transaction mode each transaction may meet another session of the server."""

from __future__ import annotations

from typing import ClassVar
from urllib.parse import urlsplit

from tests.servers.absent import need
from tests.servers.postgres import give, is_ready, system_user
from tests.servers.process import Server

# Few sessions for many clients, so that what a session remembers is soon missed.
SESSIONS = 4
# For clients that are frozen, or that the network forgets: they hold locks and one of the few sessions until then.
VANISHED_SECONDS = 2
# Of the whole state of a session, plans are kept; DISCARD ALL would drop them.
RESET = (
    "CLOSE ALL; RESET ALL; DEALLOCATE ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES"
)


class PgBouncer(Server):
    name: ClassVar[str] = "pgbouncer"

    def __init__(
        self,
        postgres_url: str,
        *,
        sessions: int = SESSIONS,
        mode: str = "transaction",
        idle_transaction_seconds: int = 0,
    ) -> None:
        """`idle_transaction_seconds`: a transaction whose client is silent for longer is rolled back; 0: never."""
        self._program = need(self.name)
        super().__init__(user=system_user())
        self._to = urlsplit(postgres_url)
        self._sessions = sessions
        self._mode = mode
        self._idle_transaction_seconds = idle_transaction_seconds

    @property
    def url(self) -> str:
        return f"postgresql://{self._to.username}@127.0.0.1:{self.port}{self._to.path}"

    def command(self) -> list[str]:
        users, settings = self.folder / "users", self.folder / "settings.ini"
        users.write_text(f'"{self._to.username}" "{self._to.password or ""}"\n')
        settings.write_text(
            "[databases]\n"
            f"* = host={self._to.hostname} port={self._to.port or 5432}\n"
            "[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {users}\nadmin_users = {self._to.username}\n"
            f"pool_mode = {self._mode}\ndefault_pool_size = {self._sessions}\nmax_client_conn = 500\n"
            f"server_reset_query = {RESET}\n"
            # A killed server is tried again soon.
            f"server_login_retry = 1\nidle_transaction_timeout = {self._idle_transaction_seconds}\n"
            "log_connections = 0\nlog_disconnections = 0\n"
        )
        give(self.folder)
        return [str(self._program), str(settings)]

    def answers(self) -> bool:
        return is_ready(self.port)

"""Real servers for the tests: private, on free ports, in temporary folders, gone when the tests are."""

from tests.servers.absent import Absent
from tests.servers.certificate import Certificate
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.servers.process import Server
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer

__all__ = ["Absent", "Certificate", "PgBouncer", "PostgresServer", "Proxy", "RedisServer", "Server"]

"""Access control: roles, their permissions, and the queues, groups and kinds that a principal is restricted to."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from jobyard.domain.instant import Instant

# Queues, and again groups and kinds, that a token can be restricted to.
MAX_SCOPES = 1000


class Role(StrEnum):
    VIEWER = "viewer"  # sees everything except secrets in payloads, changes nothing
    SUBMITTER = "submitter"  # submits jobs; sees and cancels only its own
    OPERATOR = "operator"  # sees, submits and changes all jobs, queues, groups and workers
    ADMIN = "admin"  # also tokens, the audit log and retention


class Permission(StrEnum):
    READ = "read"
    WATCH = "watch"  # shared resources: queues, groups, workers
    SUBMIT = "submit"
    OPERATE = "operate"
    ADMINISTER = "administer"
    REVEAL = "reveal"  # values of fields that look like secrets: see `domain.redaction`


ALLOWED: dict[Role, frozenset[Permission]] = {
    Role.VIEWER: frozenset({Permission.READ, Permission.WATCH}),
    # A submitter sees only jobs that it submitted itself, so their secrets are its own.
    Role.SUBMITTER: frozenset({Permission.READ, Permission.SUBMIT, Permission.REVEAL}),
    Role.OPERATOR: frozenset(Permission) - {Permission.ADMINISTER},
    Role.ADMIN: frozenset(Permission),
}


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated caller."""

    id: str
    name: str
    role: Role
    queues: tuple[str, ...] = ()  # empty: all
    groups: tuple[str, ...] = ()  # empty: all, also jobs without a group
    kinds: tuple[str, ...] = ()  # empty: all; to submit, those whose handlers declare one of its queues

    def may(self, permission: Permission) -> bool:
        return permission in ALLOWED[self.role]

    @property
    def sees_own_jobs_only(self) -> bool:
        return self.role is Role.SUBMITTER

    @property
    def has_scope(self) -> bool:
        return bool(self.queues or self.groups or self.kinds)

    @property
    def has_whole_queues(self) -> bool:
        """Whether its scope is made of whole queues, or of everything."""
        return not self.groups and not self.kinds

    def reaches(self, queue: str, group: str | None, kind: str) -> bool:
        return (
            (not self.queues or queue in self.queues)
            and (not self.groups or group in self.groups)
            and (not self.kinds or kind in self.kinds)
        )

    def covers(self, other: Principal) -> bool:
        """Whether its scope includes the whole scope of the other principal."""
        return all(
            not own or (bool(wanted) and set(wanted) <= set(own))
            for own, wanted in (
                (self.queues, other.queues),
                (self.groups, other.groups),
                (self.kinds, other.kinds),
            )
        )


# For a server on loopback with --insecure, and for the command line directly on the store.
OWNER = Principal(id="owner", name="owner", role=Role.ADMIN)


class TokenInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A token without its secret."""

    id: str
    name: str
    role: Role
    queues: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    created_at: Instant = 0
    expires_at: Instant | None = None
    last_used_at: Instant | None = None  # to about a minute; None: never, or not known

    @property
    def principal(self) -> Principal:
        return Principal(
            id=self.id, name=self.name, role=self.role, queues=self.queues, groups=self.groups, kinds=self.kinds
        )


class AuditLog(StrEnum):
    """A part of the audit log. Each is trimmed for itself, so that no role can push out the entries of higher ones."""

    CHANGES = "changes"  # by operators and admins
    LOGINS = "logins"
    OTHER_CHANGES = "other_changes"  # by roles that cannot operate: submitters, of their own jobs
    OTHER_LOGINS = "other_logins"

    @classmethod
    def of(cls, principal: Principal, action: str) -> AuditLog:
        is_login = action.startswith("session.")
        if principal.may(Permission.OPERATE):
            return cls.LOGINS if is_login else cls.CHANGES
        return cls.OTHER_LOGINS if is_login else cls.OTHER_CHANGES


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    log: AuditLog = AuditLog.CHANGES
    number: int  # within the log
    at: Instant  # the store's clock
    principal: str  # the id of the principal
    name: str
    role: Role
    action: str
    target: str = ""
    details: dict[str, Any] = {}

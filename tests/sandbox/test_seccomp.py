"""The filters of zygote and box together equal a single filter with the whole list."""

from __future__ import annotations

import errno
import platform
import random
import struct
from collections.abc import Iterator
from functools import cache

import pytest

from jobyard.sandbox.daemon import seccomp

pytest.importorskip("pyseccomp")
pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="system call numbers of x86_64")

ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
X86, X32, ARM, I386 = 0xC000003E, 0x40000000, 0xC00000B7, 0x40000003
RULES = [
    seccomp.Rules(),
    seccomp.Rules(can_fork=False, has_memory_group=False),
    seccomp.Rules(can_execute=False, can_change_files=False),
]
CLONE, CLONE3, MOUNT, SECCOMP, SETNS, PRCTL = 56, 435, 165, 317, 308, 157


@cache
def instructions(program: bytes) -> list[tuple[int, ...]]:
    return list(struct.iter_unpack("<HBBI", program))


def outcome(program: bytes, number: int, arguments: tuple[int, ...], architecture: int = X86) -> int:
    """Interpret a BPF program, as far as libseccomp uses it."""
    data = struct.pack("<iIQ6Q", number, architecture, 0, *arguments)
    code = instructions(program)
    a = at = 0
    while True:
        operation, yes, no, value = code[at]
        at += 1
        match operation:
            case 0x20:  # load
                (a,) = struct.unpack_from("<I", data, value)
            case 0x54:  # and
                a &= value
            case 0x05:  # jump
                at += value
            case 0x15:
                at += yes if a == value else no
            case 0x25:
                at += yes if a > value else no
            case 0x35:
                at += yes if a >= value else no
            case 0x45:
                at += yes if a & value else no
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"unknown BPF operation {operation:#x}")


def together(filters: seccomp.Filters, number: int, arguments: tuple[int, ...], architecture: int = X86) -> int:
    """The strictest action; of equal ones, that of the filter loaded last."""
    seen = [outcome(program, number, arguments, architecture) for program in (filters.box, filters.zygote)]
    signed = [value - (1 << 32) if value & KILL else value for value in (each & 0xFFFF0000 for each in seen)]
    return seen[signed.index(min(signed))]


def calls() -> Iterator[tuple[int, tuple[int, ...]]]:
    chance = random.Random(6)
    words = [0, 1, 2, 3, 4, 16, 38, 47, 0x11, 0x10000, 0x3D0F00, 0x5401, 0x1200011, 1 << 32, (1 << 64) - 1]
    words += [1 << bit for bit in range(32)] + [0x10000 | 1 << bit for bit in range(17, 32)]
    for number in range(480):
        for word in words:
            yield number, (word, chance.choice(words), chance.choice(words), 0, 0, 0)
        for _ in range(10):
            yield number, tuple(chance.choice([chance.choice(words), chance.getrandbits(64)]) for _ in range(6))


@pytest.mark.parametrize("rules", RULES, ids=["all", "no fork", "read only"])
def test_two_filters_equal_a_single_one(rules: seccomp.Rules) -> None:
    filters, one = seccomp.build(rules), seccomp.build_single(rules)
    allowed = 0
    for number, arguments in calls():
        seen, wanted = together(filters, number, arguments), outcome(one, number, arguments)
        assert seen == wanted, (number, [hex(each) for each in arguments], hex(seen), hex(wanted))
        allowed += wanted == ALLOW
    assert allowed > 1000


@pytest.mark.parametrize("rules", RULES, ids=["all", "no fork", "read only"])
def test_calls_of_another_architecture_kill(rules: seccomp.Rules) -> None:
    filters = seccomp.build(rules)
    for architecture in (ARM, I386):
        assert together(filters, 1, (0,) * 6, architecture) == KILL
    assert together(filters, X32 | 1, (0,) * 6) == KILL


def test_zygote_can_spawn_boxes_and_boxes_cannot() -> None:
    filters = seccomp.build(seccomp.Rules())
    for number, first in ((MOUNT, 0), (SECCOMP, 1), (SETNS, 5), (CLONE, 0x20000011), (PRCTL, 47)):
        arguments = (first, 0, 0, 0, 0, 0)
        assert outcome(filters.zygote, number, arguments) == ALLOW
        assert together(filters, number, arguments) == ERRNO | errno.EPERM
    assert outcome(filters.zygote, CLONE3, (0,) * 6) == ALLOW
    assert together(filters, CLONE3, (0,) * 6) == ERRNO | errno.ENOSYS


def test_filter_with_own_pid_is_single() -> None:
    rules = seccomp.Rules(own_pid_only=True, can_fork=False)
    assert seccomp.build(rules) == seccomp.Filters(b"", seccomp.build_single(rules))

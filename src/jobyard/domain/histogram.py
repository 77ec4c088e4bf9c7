"""Histogram of durations in fixed buckets, so that those of many processes add up, and its percentiles."""

from __future__ import annotations

from collections.abc import Mapping

# Durations are counted in tenths of a millisecond; the upper bounds of the buckets grow by the square root of two.
PER_SECOND = 10_000


def bucket_of(seconds: float) -> int:
    """
    >>> [bucket_of(each) for each in (-1.0, 0.0, 0.0001, 0.001, 1.0, 3600.0)]
    [0, 0, 1, 7, 27, 51]
    """
    tenths = int(seconds * PER_SECOND)
    return (tenths * tenths).bit_length() if tenths > 0 else 0


def upper_bound(bucket: int) -> float:
    """
    >>> round(upper_bound(27), 2), upper_bound(0)
    (1.16, 0.0001)
    """
    return float(2 ** (bucket / 2)) / PER_SECOND


def percentile(counts: Mapping[int, int], share: float) -> float | None:
    """The duration in seconds that this share of all does not exceed, within the width of a bucket; None without any.

    >>> counts = {bucket_of(0.1): 95, bucket_of(10.0): 5}
    >>> 0.08 < percentile(counts, 0.5) < 0.13, 0.08 < percentile(counts, 0.95) < 0.13, 8 < percentile(counts, 0.99) < 13
    (True, True, True)
    >>> percentile({}, 0.5) is None
    True
    """
    wanted = share * sum(counts.values())
    if wanted <= 0:
        return None
    passed = 0
    for bucket in sorted(counts):
        here = counts[bucket]
        if passed + here >= wanted:
            low = upper_bound(bucket - 1) if bucket else 0.0
            return low + (upper_bound(bucket) - low) * (wanted - passed) / here
        passed += here
    raise AssertionError("unreachable: the shares add up to one")

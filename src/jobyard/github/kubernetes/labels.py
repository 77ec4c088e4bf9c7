"""Labels and annotations of runner pods: how pods are found, and what a pod says about its runner."""

from __future__ import annotations

import re

PREFIX = "jobyard/"
MANAGED_BY = "app.kubernetes.io/managed-by"
INSTANCE = PREFIX + "instance"
ORG = PREFIX + "org"
REPOSITORY = PREFIX + "registered-repository"  # of a runner that is registered with one repository
PROFILE = PREFIX + "profile"
TICKET = PREFIX + "ticket"
RUNNER_ID = PREFIX + "runner-id"
JOB_ID = PREFIX + "job-id"  # the job that it was launched for; GitHub may give it another one

# Each of these is a label, for selectors, and an annotation, which holds the full value.
IDENTITY = (ORG, REPOSITORY, PROFILE, TICKET, RUNNER_ID, JOB_ID)

LONGEST_VALUE = 63


def label_value(text: str) -> str:
    """The text as a valid label value.

    >>> label_value("linux/x64 (large)"), label_value("_a_"), label_value("x" * 70) == "x" * 63, label_value("é")
    ('linux-x64--large', 'a', True, '')
    """
    cleaned = re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:LONGEST_VALUE]
    return re.sub(r"^[^A-Za-z0-9]+|[^A-Za-z0-9]+$", "", cleaned)


def annotation_key(key: str) -> str:
    """The key with our prefix, unless it has one.

    >>> annotation_key("job name"), annotation_key("example.com/team")
    ('jobyard/job-name', 'example.com/team')
    """
    prefix, slash, name = key.rpartition("/")
    return f"{prefix}/{label_value(name)}" if slash else PREFIX + label_value(name)


def selector(instance: str) -> str:
    """
    >>> selector("blue")
    'app.kubernetes.io/managed-by=jobyard,jobyard/instance=blue'
    """
    return ",".join(f"{key}={value}" for key, value in owner_labels(instance).items())


def owner_labels(instance: str) -> dict[str, str]:
    return {MANAGED_BY: "jobyard", INSTANCE: label_value(instance)}


def identity(facts: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and annotations for facts about a runner, given by short or full key.

    >>> identity({"org": "acme", "url": "https://example.com"})
    ({'jobyard/org': 'acme'}, {'jobyard/org': 'acme', 'jobyard/url': 'https://example.com'})
    """
    annotations = {annotation_key(key): value for key, value in facts.items()}
    labels = {key: label_value(value) for key, value in annotations.items() if key in IDENTITY and value}
    return labels, annotations

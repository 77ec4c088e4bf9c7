"""The fake Kubernetes API behaves as a real one does: revisions, lists, watches, writes, errors, access."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from tests.github.fake_cluster import (
    NAMESPACE,
    Json,
    in_phase,
    make_cluster,
    names,
    pod,
    refusal,
    schema_problems,
    secret,
    still,
    take,
    until,
    until_gone,
    virtual,
)

from jobyard.demo.fake_kubernetes import Faults, PodPlan, Rule, Settings, User


@virtual
async def test_revisions_are_shared_and_a_list_tells_its_own() -> None:
    cluster = still()
    first = await cluster.create("pods", NAMESPACE, pod("a"))
    other = await cluster.create("secrets", NAMESPACE, secret("s", key="v"))
    found = await cluster.list("pods", NAMESPACE)
    assert int(first["metadata"]["resourceVersion"]) < int(other["metadata"]["resourceVersion"])
    assert found["metadata"]["resourceVersion"] == other["metadata"]["resourceVersion"]
    assert (found["kind"], found["apiVersion"], names(found)) == ("PodList", "v1", ["a"])
    assert "kind" not in found["items"][0]


@virtual
async def test_an_answer_is_a_copy() -> None:
    cluster = still()
    made = await cluster.create("pods", NAMESPACE, pod("a", labels={"app": "x"}))
    made["metadata"]["labels"]["x"] = "y"
    assert (await cluster.get("pods", NAMESPACE, "a"))["metadata"]["labels"] == {"app": "x"}


@virtual
async def test_a_watch_replays_everything_after_its_revision() -> None:
    cluster = still()
    start = (await cluster.list("pods", NAMESPACE))["metadata"]["resourceVersion"]
    await cluster.create("pods", NAMESPACE, pod("a"))
    await cluster.patch("pods", NAMESPACE, "a", {"metadata": {"labels": {"x": "1"}}})
    await cluster.delete("pods", NAMESPACE, "a")
    seen = await take(cluster, 3, resource_version=start)
    assert seen == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


@virtual
async def test_a_watch_without_a_revision_begins_with_what_exists() -> None:
    cluster = still()
    await cluster.create("pods", NAMESPACE, pod("a"))
    watch = cluster.watch("pods", NAMESPACE, send_initial_events=True, allow_bookmarks=True)
    first, second = await anext(watch), await anext(watch)
    assert (first["type"], second["type"]) == ("ADDED", "BOOKMARK")
    assert second["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    await watch.aclose()


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("app=x", ["a"]),
        ("app==x", ["a"]),
        ("app!=x", ["b", "c"]),
        ("app in (x, y)", ["a", "b"]),
        ("app notin (x)", ["b", "c"]),
        ("app", ["a", "b"]),
        ("!app", ["c"]),
        ("app,tier=one", ["b"]),
        ("jobyard.dev/kind=r", ["c"]),
    ],
)
@virtual
async def test_label_selectors(selector: str, found: list[str]) -> None:
    cluster = still(schema_check=None)
    await cluster.create("pods", NAMESPACE, pod("a", labels={"app": "x"}))
    await cluster.create("pods", NAMESPACE, pod("b", labels={"app": "y", "tier": "one"}))
    await cluster.create("pods", NAMESPACE, pod("c", labels={"jobyard.dev/kind": "r"}))
    assert names(await cluster.list("pods", NAMESPACE, label_selector=selector)) == found


@virtual
async def test_selectors_that_cannot_be_read_are_refused() -> None:
    cluster = still()
    assert (await refusal(cluster.list("pods", NAMESPACE, label_selector="a=b,"))).status_code == 400
    assert (await refusal(cluster.list("pods", NAMESPACE, label_selector="a in x"))).status_code == 400
    unsupported = await refusal(cluster.list("pods", NAMESPACE, field_selector="spec.image=x"))
    assert unsupported.body["message"] == "field label not supported: spec.image"


@virtual
async def test_leaving_the_selector_of_a_watch_is_a_deletion() -> None:
    cluster = still()
    start = (await cluster.list("pods"))["metadata"]["resourceVersion"]
    await cluster.create("pods", NAMESPACE, pod("a", labels={"app": "x"}))
    await cluster.patch("pods", NAMESPACE, "a", {"metadata": {"labels": {"app": "y"}}})
    changed = await cluster.patch("pods", NAMESPACE, "a", {"metadata": {"labels": {"app": "x"}}})
    watch = cluster.watch("pods", NAMESPACE, label_selector="app=x", resource_version=start)
    events = [await anext(watch) for _ in range(3)]
    assert [event["type"] for event in events] == ["ADDED", "DELETED", "ADDED"]
    # The object is the last one that matched, at the revision of the change.
    left = events[1]["object"]["metadata"]
    assert left["labels"] == {"app": "x"}
    assert int(left["resourceVersion"]) == int(changed["metadata"]["resourceVersion"]) - 1
    await watch.aclose()


@virtual
async def test_field_selectors_follow_the_phase() -> None:
    cluster = make_cluster(faults=Faults(plan=PodPlan(exit_code=0, run_seconds=5)))
    await cluster.create("pods", NAMESPACE, pod("a"))
    await until(cluster, in_phase("Running"))
    assert names(await cluster.list("pods", field_selector="status.phase=Running")) == ["a"]
    seen = await take(cluster, 2, field_selector="status.phase=Running")
    assert seen == [("ADDED", "a"), ("DELETED", "a")]
    await cluster.close()


@virtual
async def test_bookmarks_carry_the_revision_and_the_time_out_ends_the_watch() -> None:
    cluster = still()
    await cluster.create("secrets", NAMESPACE, secret("s", key="v"))
    loop = asyncio.get_running_loop()
    began = loop.time()
    events = [event async for event in cluster.watch("pods", NAMESPACE, allow_bookmarks=True, timeout_seconds=130)]
    seen = [
        (event["type"], event["object"]["metadata"]["resourceVersion"], event["object"]["kind"]) for event in events
    ]
    revision = str(cluster.storage.revision)
    assert seen == [("BOOKMARK", revision, "Pod")] * 3
    assert loop.time() - began == pytest.approx(130)


@pytest.mark.parametrize("variant", ["http", "event"])
@virtual
async def test_a_compacted_revision_is_gone_in_both_forms(variant: Any) -> None:
    cluster = still(settings=Settings(gone_variant=variant))
    start = (await cluster.list("pods"))["metadata"]["resourceVersion"]
    await cluster.create("pods", NAMESPACE, pod("a"))
    cluster.compact()
    watch = cluster.watch("pods", NAMESPACE, resource_version=start)
    if variant == "http":
        body = (await refusal(watch.__anext__())).body
    else:
        event = await anext(watch)
        assert event["type"] == "ERROR"
        body = event["object"]
        with pytest.raises(StopAsyncIteration):
            await anext(watch)
    assert (body["code"], body["reason"]) == (410, "Expired")
    assert body["message"].startswith(f"too old resource version: {start} (")
    fresh = (await cluster.list("pods"))["metadata"]["resourceVersion"]
    await cluster.create("pods", NAMESPACE, pod("b"))
    assert await take(cluster, 1, resource_version=fresh) == [("ADDED", "b")]


@virtual
async def test_history_expires_by_itself() -> None:
    cluster = still(settings=Settings(gone_variant="http"))
    start = (await cluster.list("pods"))["metadata"]["resourceVersion"]
    await cluster.create("pods", NAMESPACE, pod("a"))
    await asyncio.sleep(299)
    assert await take(cluster, 1, resource_version=start) == [("ADDED", "a")]
    await asyncio.sleep(2)
    assert (await refusal(take(cluster, 1, resource_version=start))).status_code == 410


@virtual
async def test_pages_show_one_snapshot_and_their_tokens_expire() -> None:
    cluster = still()
    for name in "abcd":
        await cluster.create("secrets", NAMESPACE, secret(name, key="v"))
    first = await cluster.list("secrets", NAMESPACE, limit=2)
    assert (names(first), first["metadata"]["remainingItemCount"]) == (["a", "b"], 2)
    await cluster.delete("secrets", NAMESPACE, "c")
    await cluster.create("secrets", NAMESPACE, secret("e", key="v"))
    token = first["metadata"]["continue"]
    second = await cluster.list("secrets", NAMESPACE, limit=2, continue_token=token)
    assert names(second) == ["c", "d"]
    assert second["metadata"] == {"resourceVersion": first["metadata"]["resourceVersion"]}
    cluster.compact()
    expired = await refusal(cluster.list("secrets", NAMESPACE, limit=2, continue_token=token))
    assert (expired.status_code, expired.body["reason"]) == (410, "Expired")
    rest = await cluster.list("secrets", NAMESPACE, continue_token=expired.body["metadata"]["continue"])
    assert names(rest) == ["d", "e"]


@virtual
async def test_a_second_create_conflicts() -> None:
    cluster = make_cluster()
    await cluster.create("pods", NAMESPACE, pod("a", terminationGracePeriodSeconds=30))
    again = await refusal(cluster.create("pods", NAMESPACE, pod("a")))
    assert again.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'pods "a" already exists',
        "reason": "AlreadyExists",
        "details": {"name": "a", "kind": "pods"},
        "code": 409,
    }
    await cluster.close()


def _with(field: str, value: Any) -> Json:
    item = pod("a")
    item["spec"]["containers"][0][field] = value
    return item


@pytest.mark.parametrize(
    ("item", "field"),
    [
        (pod("Upper"), "metadata.name"),
        (pod("a" * 254), "metadata.name"),
        (pod("a", labels={"app": "has space"}), "metadata.labels"),
        (pod("a", labels={"app": "x" * 64}), "metadata.labels"),
        (pod("a", containers=[]), "spec.containers"),
        (pod("a", restartPolicy="Sometimes"), "spec.restartPolicy"),
        (pod("a", activeDeadlineSeconds=0), "spec.activeDeadlineSeconds"),
        (_with("name", "Not_DNS"), "spec.containers[0].name"),
        (_with("image", ""), "spec.containers[0].image"),
        (_with("volumeMounts", [{"name": "v", "mountPath": "/v"}]), "spec.containers[0].volumeMounts[0].name"),
        (
            _with("resources", {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
            "spec.containers[0].resources.requests",
        ),
    ],
)
@virtual
async def test_invalid_pods_are_refused_with_the_field(item: Json, field: str) -> None:
    cluster = still()
    problem = await refusal(cluster.create("pods", NAMESPACE, item))
    assert (problem.status_code, problem.body["reason"]) == (422, "Invalid")
    assert problem.body["message"].startswith(f'Pod "{item["metadata"]["name"]}" is invalid: ')
    assert field in [cause["field"] for cause in problem.body["details"]["causes"]]
    assert names(await cluster.list("pods")) == []


@virtual
async def test_an_unknown_field_is_refused_by_the_schema() -> None:
    cluster = still()
    problem = await refusal(cluster.create("pods", NAMESPACE, pod("a", restartPolice="Never")))
    assert problem.status_code == 400
    assert "restartPolice" in problem.body["message"]


@virtual
async def test_the_spec_of_a_pod_is_immutable() -> None:
    cluster = still()
    await cluster.create("pods", NAMESPACE, pod("a", activeDeadlineSeconds=100))
    hostname = await refusal(cluster.patch("pods", NAMESPACE, "a", {"spec": {"hostname": "other"}}))
    assert hostname.status_code == 422
    assert "pod updates may not change fields other than" in hostname.body["message"]
    assert (
        await refusal(cluster.patch("pods", NAMESPACE, "a", {"spec": {"activeDeadlineSeconds": 200}}))
    ).status_code == 422
    shorter = await cluster.patch("pods", NAMESPACE, "a", {"spec": {"activeDeadlineSeconds": 50}})
    assert shorter["spec"]["activeDeadlineSeconds"] == 50


@virtual
async def test_the_status_is_written_only_through_its_subresource() -> None:
    cluster = still()
    await cluster.create("pods", NAMESPACE, {**pod("a"), "status": {"phase": "Running"}})
    patch = {"status": {"phase": "Running"}, "metadata": {"annotations": {"x": "1"}}}
    plain = await cluster.patch("pods", NAMESPACE, "a", patch)
    assert (plain["status"]["phase"], plain["metadata"]["annotations"]) == ("Pending", {"x": "1"})
    changed = await cluster.patch("pods", NAMESPACE, "a", {**patch, "spec": {"hostname": "x"}}, subresource="status")
    assert changed["status"]["phase"] == "Running"
    assert "hostname" not in changed["spec"]


@virtual
async def test_a_change_of_nothing_makes_no_new_revision() -> None:
    cluster = still()
    made = await cluster.create("pods", NAMESPACE, pod("a", labels={"x": "1"}))
    same = await cluster.patch("pods", NAMESPACE, "a", {"metadata": {"labels": {"x": "1"}}})
    assert same == made


@virtual
async def test_a_dry_run_validates_and_stores_nothing() -> None:
    cluster = still()
    before = cluster.storage.revision
    tried = await cluster.create("pods", NAMESPACE, pod("a"), dry_run=True)
    assert tried["spec"]["serviceAccountName"] == "default"
    assert (await refusal(cluster.create("pods", NAMESPACE, pod("A"), dry_run=True))).status_code == 422
    assert (names(await cluster.list("pods")), cluster.storage.revision) == ([], before)


@virtual
async def test_a_quota_refuses_until_a_pod_has_ended() -> None:
    cluster = make_cluster(faults=Faults(plan=PodPlan(exit_code=0, run_seconds=30)))
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}}
    await cluster.create("resourcequotas", NAMESPACE, {"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    await cluster.create("pods", NAMESPACE, pod("a"))
    await cluster.create("pods", NAMESPACE, pod("b"))
    full = await refusal(cluster.create("pods", NAMESPACE, pod("c")))
    assert full.status_code == 403
    assert full.body["reason"] == "Forbidden"
    assert full.body["message"] == (
        'pods "c" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2'
    )
    await until(cluster, in_phase("Succeeded"))
    await cluster.create("pods", NAMESPACE, pod("c"))
    await cluster.close()


@virtual
async def test_a_quota_on_cpu_must_be_answered_by_every_container() -> None:
    cluster = still()
    quota = {"metadata": {"name": "cpu"}, "spec": {"hard": {"requests.cpu": "1"}}}
    await cluster.create("resourcequotas", NAMESPACE, quota | {"apiVersion": "v1", "kind": "ResourceQuota"})
    silent = await refusal(cluster.create("pods", NAMESPACE, pod("a")))
    assert silent.body["message"].endswith("failed quota: cpu: must specify requests.cpu for: runner")
    large = await refusal(cluster.create("pods", NAMESPACE, _with("resources", {"requests": {"cpu": "1500m"}})))
    assert large.body["message"].endswith(
        "requested: requests.cpu=1500m, used: requests.cpu=0, limited: requests.cpu=1"
    )


@virtual
async def test_preconditions_of_a_deletion() -> None:
    cluster = still()
    made = await cluster.create("pods", NAMESPACE, pod("a"))
    wrong = await refusal(cluster.delete("pods", NAMESPACE, "a", {"preconditions": {"uid": "other"}}))
    assert (wrong.status_code, wrong.body["reason"]) == (409, "Conflict")
    assert f"UID in precondition: other, UID in object meta: {made['metadata']['uid']}" in wrong.body["message"]
    await cluster.delete("pods", NAMESPACE, "a", {"preconditions": {"uid": made["metadata"]["uid"]}})
    missing = await refusal(cluster.get("pods", NAMESPACE, "a"))
    assert (missing.status_code, missing.body["message"]) == (404, 'pods "a" not found')


@virtual
async def test_a_finalizer_holds_an_object() -> None:
    cluster = still()
    item = secret("s", key="v")
    item["metadata"]["finalizers"] = ["jobyard.dev/hold"]
    await cluster.create("secrets", NAMESPACE, item)
    held = await cluster.delete("secrets", NAMESPACE, "s")
    assert held["metadata"]["deletionTimestamp"]
    added = {"metadata": {"finalizers": ["jobyard.dev/hold", "jobyard.dev/more"]}}
    assert (await refusal(cluster.patch("secrets", NAMESPACE, "s", added))).status_code == 422
    await cluster.patch("secrets", NAMESPACE, "s", {"metadata": {"finalizers": None}})
    assert (await refusal(cluster.get("secrets", NAMESPACE, "s"))).status_code == 404


def owned_by(owner: Json) -> Json:
    reference = {"apiVersion": "v1", "kind": "Pod", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    return {"metadata": {"ownerReferences": [reference]}}


@virtual
async def test_a_secret_follows_its_pod() -> None:
    cluster = still()
    await cluster.create("secrets", NAMESPACE, secret("s", key="v"))
    owner = await cluster.create("pods", NAMESPACE, pod("a"))
    await cluster.patch("secrets", NAMESPACE, "s", owned_by(owner))
    await asyncio.sleep(5)
    assert names(await cluster.list("secrets")) == ["s"]
    await cluster.delete("pods", NAMESPACE, "a")
    await until_gone(cluster, "secrets", "s", seconds=10)


@virtual
async def test_an_owner_that_is_already_gone_takes_its_dependent_along() -> None:
    cluster = still()
    owner = await cluster.create("pods", NAMESPACE, pod("a"))
    await cluster.delete("pods", NAMESPACE, "a")
    await cluster.create("pods", NAMESPACE, pod("a"))
    await cluster.create("secrets", NAMESPACE, secret("s", key="v"))
    await cluster.patch("secrets", NAMESPACE, "s", owned_by(owner))
    await until_gone(cluster, "secrets", "s", seconds=10)


@virtual
async def test_secrets_are_encoded_and_answered_with_a_status_when_deleted() -> None:
    cluster = still()
    made = await cluster.create("secrets", NAMESPACE, secret("s", key="value"))
    assert made["data"] == {"key": base64.b64encode(b"value").decode()}
    assert "stringData" not in made
    assert (await refusal(cluster.patch("secrets", NAMESPACE, "s", {"data": {"key": "%"}}))).status_code == 400
    gone = await cluster.delete("secrets", NAMESPACE, "s")
    assert (gone["kind"], gone["status"], gone["details"]["kind"]) == ("Status", "Success", "secrets")


@virtual
async def test_leases_are_taken_by_one() -> None:
    cluster = still()
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "m"}, "spec": spec}
    made = await cluster.create("leases", NAMESPACE, lease)
    taken = await cluster.update("leases", NAMESPACE, "m", {**made, "spec": {**spec, "holderIdentity": "b"}})
    assert taken["spec"]["holderIdentity"] == "b"
    late = await refusal(cluster.update("leases", NAMESPACE, "m", {**made, "spec": {**spec, "holderIdentity": "c"}}))
    assert (late.status_code, late.body["reason"]) == (409, "Conflict")
    assert late.body["details"] == {"name": "m", "group": "coordination.k8s.io", "kind": "leases"}
    blind = {**lease, "spec": spec}
    assert (await refusal(cluster.update("leases", NAMESPACE, "m", blind))).status_code == 422
    seconds = {**taken, "spec": {**spec, "renewTime": "2026-01-01T00:00:00Z"}}
    assert (await refusal(cluster.update("leases", NAMESPACE, "m", seconds))).status_code == 400


@virtual
async def test_deleting_a_namespace_empties_it() -> None:
    cluster = still()
    await cluster.create("secrets", NAMESPACE, secret("s", key="v"))
    await cluster.delete("namespaces", None, NAMESPACE)
    closing = await refusal(cluster.create("pods", NAMESPACE, pod("a")))
    assert (closing.status_code, "being terminated" in closing.body["message"]) == (403, True)
    await asyncio.sleep(10)
    assert names(await cluster.list("namespaces")) == []
    assert names(await cluster.list("secrets")) == []
    assert (await refusal(cluster.create("pods", NAMESPACE, pod("a")))).status_code == 404


@virtual
async def test_access_is_by_verb_resource_and_namespace() -> None:
    cluster = still()
    rules = (Rule(verbs=("get", "list"), resources=("pods",), namespace=NAMESPACE),)
    user = User(name="system:serviceaccount:yard:manager", rules=rules)
    await cluster.list("pods", NAMESPACE, user=user)
    refused = await refusal(cluster.create("pods", NAMESPACE, pod("a"), user=user))
    assert refused.body["message"] == (
        'pods "a" is forbidden: User "system:serviceaccount:yard:manager" cannot create resource "pods" '
        f'in API group "" in the namespace "{NAMESPACE}"'
    )
    everywhere = await refusal(cluster.list("pods", None, user=user))
    assert everywhere.body["message"].endswith("at the cluster scope")
    for verb, allowed in (("list", True), ("delete", False)):
        asked = {"spec": {"resourceAttributes": {"verb": verb, "resource": "pods", "namespace": NAMESPACE}}}
        review = await cluster.create("selfsubjectaccessreviews", None, asked, user=user)
        assert review["status"]["allowed"] is allowed


@virtual
async def test_what_is_stored_fits_the_published_schemas() -> None:
    cluster = make_cluster(faults=Faults(plan=PodPlan(exit_code=7, run_seconds=5)))
    await cluster.create("pods", NAMESPACE, pod("a"))
    await until(cluster, in_phase("Failed"))
    for plural in ("pods", "events", "namespaces", "serviceaccounts"):
        items = list(cluster.storage.all(plural))
        assert items
        assert [problem for item in items for problem in schema_problems(item)] == []
    await cluster.close()

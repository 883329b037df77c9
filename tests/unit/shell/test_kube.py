"""Requests to the API server: what is sent, what errors come out, and that an answer never hangs us."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.shell.fakeapi import FakeApi, FaultError, kubeconfig

from speculative_operator.domain import names
from speculative_operator.settings import Settings
from speculative_operator.shell import errors, login
from speculative_operator.shell.kube import Kube, yaml_text
from speculative_operator.shell.login import LoginError, own_namespace
from speculative_operator.shell.resources import CHILD_BY_KIND, CHILD_SELECTOR, LEASE, OWNER, POD
from speculative_operator.shell.telemetry import Telemetry

SERVICE = CHILD_BY_KIND["Service"]
MANIFEST: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "gemma", "namespace": "ns", "labels": {names.LABEL_MANAGED_BY: names.OPERATOR}},
    "spec": {"ports": [{"port": 80}]},
}


async def test_apply_sends_the_whole_intent_by_server_side_apply(api: FakeApi, kube: Kube) -> None:
    body = await kube.apply(SERVICE, MANIFEST)
    call = api.writes()[0]
    assert (call.method, call.namespace, call.name) == ("PATCH", "ns", "gemma")
    assert call.headers["Content-Type"].partition(";")[0] == "application/apply-patch+yaml"
    assert call.query == {"fieldManager": "speculative-operator", "force": "true"}
    assert call.headers["Authorization"] == "Bearer t"
    assert call.headers["User-Agent"].startswith("speculative-operator/")
    assert body["spec"] == MANIFEST["spec"]
    assert "resourceVersion" not in MANIFEST["metadata"], "the manifest itself is not changed"


async def test_apply_without_a_uid_never_touches_an_object_of_somebody_else(api: FakeApi, kube: Kube) -> None:
    theirs = await api.put(SERVICE, {**MANIFEST, "spec": {"ports": [{"port": 443}]}})
    with pytest.raises(errors.ConflictError):
        await kube.apply(SERVICE, MANIFEST)
    assert api.find("Service") == [theirs]


async def test_apply_with_a_uid_wants_exactly_that_object(api: FakeApi, kube: Kube) -> None:
    ours = await kube.apply(SERVICE, MANIFEST)
    await kube.apply(SERVICE, MANIFEST, uid=ours["metadata"]["uid"])
    with pytest.raises(errors.ConflictError):
        await kube.apply(SERVICE, MANIFEST, uid="another")
    await api.drop(SERVICE, "gemma")
    with pytest.raises(errors.ConflictError):
        await kube.apply(SERVICE, MANIFEST, uid=ours["metadata"]["uid"])


async def test_lists_come_in_pages_and_only_what_is_labelled(api: FakeApi, kube: Kube) -> None:
    api.page = 3
    for number in range(8):
        await api.put(SERVICE, {**MANIFEST, "metadata": {**MANIFEST["metadata"], "name": f"s{number}"}})
    await api.put(SERVICE, {"metadata": {"name": "theirs", "namespace": "ns"}})
    found = [body async for body in kube.list(SERVICE, selector=CHILD_SELECTOR)]
    assert [body["metadata"]["name"] for body in found] == [f"s{number}" for number in range(8)]
    assert {(body["kind"], body["apiVersion"]) for body in found} == {("Service", "v1")}
    assert len([call for call in api.calls if call.method == "GET"]) == 3


async def test_a_delete_names_the_uid(api: FakeApi, kube: Kube) -> None:
    ours = await kube.apply(SERVICE, MANIFEST)
    with pytest.raises(errors.ConflictError):
        await kube.delete(SERVICE, "ns", "gemma", "another")
    await kube.delete(SERVICE, "ns", "gemma", ours["metadata"]["uid"])
    assert api.find("Service") == []


async def test_a_merge_patch_changes_only_what_it_names(api: FakeApi, kube: Kube) -> None:
    pod = await api.put(POD, {"kind": "Pod", "metadata": {"name": "p", "namespace": "ns", "annotations": {"a": "1"}}})
    patch = {"metadata": {"uid": pod["metadata"]["uid"], "annotations": {"b": "2"}}}
    body = await kube.merge(POD, "ns", "p", patch)
    assert body["metadata"]["annotations"] == {"a": "1", "b": "2"}
    with pytest.raises(errors.ConflictError):
        await kube.merge(POD, "ns", "p", {"metadata": {"uid": "another", "annotations": {"b": "3"}}})


async def test_errors_carry_verb_resource_and_the_servers_words(api: FakeApi, kube: Kube) -> None:
    api.failures.append(lambda _: FaultError(429, "slow down", headers={"Retry-After": "7"}))
    with pytest.raises(errors.ThrottledError) as caught:
        await kube.apply(SERVICE, MANIFEST)
    assert str(caught.value) == "apply services ns/gemma: slow down"
    assert caught.value.retry_after == 7.0


async def test_a_server_that_hangs_is_given_up(api: FakeApi, kube: Kube) -> None:
    api.delay = 20.0
    started = time.monotonic()
    with pytest.raises(errors.UnavailableError, match="timed out"):
        await kube.get(SERVICE, "ns", "gemma")
    assert time.monotonic() - started < 15.0


async def test_a_server_that_is_gone_is_unavailable(kube: Kube, api: FakeApi) -> None:
    kube._client.configuration.host = "http://127.0.0.1:1"
    with pytest.raises(errors.UnavailableError, match=r"no answer from http://127\.0\.0\.1:1"):
        await kube.get(SERVICE, "ns", "gemma")


async def test_an_answer_that_is_no_object_is_unavailable(kube: Kube, monkeypatch: pytest.MonkeyPatch) -> None:
    class Answer:
        status = 200
        headers: ClassVar[dict[str, str]] = {}

        async def read(self) -> bytes:
            return b"[]"

    async def call_api(*_: object, **__: object) -> Answer:
        return Answer()

    monkeypatch.setattr(kube._client, "call_api", call_api)
    with pytest.raises(errors.UnavailableError, match="not an object"):
        await kube.get(SERVICE, "ns", "gemma")


async def test_a_rotated_token_is_read_again_when_the_old_one_is_refused(
    api: FakeApi, kube: Kube, tmp_path: Path
) -> None:
    await kube.apply(SERVICE, MANIFEST)
    api.token = "new"
    with pytest.raises(errors.UnauthorizedError):
        await kube.get(SERVICE, "ns", "gemma")
    (tmp_path / "kubeconfig").write_text(kubeconfig(api, "new"), encoding="utf-8")
    assert (await kube.get(SERVICE, "ns", "gemma"))["kind"] == "Service"
    connection = await login.connection()
    assert (connection.server, connection.token) == (api.url, "new")


async def test_renewing_the_lease_does_not_queue_behind_children(api: FakeApi, kube: Kube) -> None:
    gate = kube._gate
    async with gate.slot(0, "ns"), gate.slot(0, "ns"), gate.slot(0, "ns"), gate.slot(0, "ns"):
        body = await kube.create(LEASE, "ns", {"metadata": {"name": "l"}, "spec": {}})
    assert body["metadata"]["name"] == "l"


async def test_every_request_is_counted(api: FakeApi, kube: Kube, telemetry: Telemetry) -> None:
    await kube.apply(SERVICE, MANIFEST)
    with pytest.raises(errors.NotFoundError):
        await kube.get(SERVICE, "ns", "nothing")
    text = telemetry.render().decode()
    assert 'speculative_operator_api_requests_total{code="201",verb="apply"} 1.0' in text
    assert 'speculative_operator_api_requests_total{code="404",verb="get"} 1.0' in text


async def test_no_credentials_say_what_was_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(LoginError, match="KUBECONFIG="):
        await Kube(Settings(), Telemetry()).start()
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(LoginError, match="ServiceAccount"):
        await Kube(Settings(), Telemetry()).start()


def test_the_own_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "here")
    assert own_namespace() == "here"


def test_paths() -> None:
    assert OWNER.path() == "/apis/serving.speculative.dev/v1alpha1/speculativedeployments"
    assert OWNER.path("ns", "x", "status").endswith("/namespaces/ns/speculativedeployments/x/status")
    assert POD.path("n/s", "a b") == "/api/v1/namespaces/n%2Fs/pods/a%20b"


@given(
    st.recursive(
        st.text(st.characters(exclude_categories=["Cs"])),
        lambda one: st.lists(one) | st.dictionaries(st.text("aé🙂"), one),
    )
)
def test_what_is_applied_is_yaml_with_any_character(value: Any) -> None:
    assert yaml.safe_load(yaml_text({"data": value})) == {"data": value}


def test_half_a_character_is_never_sent() -> None:
    assert yaml_text("a\ud800b") == '"a?b"'

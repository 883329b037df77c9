"""Harm: an upgrade of the operator, or scaling after it, replaces pods that KServe made."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.reconcile.observed.test_inference_service import Platform, args, serve
from tests.unit.reconcile.releases import install

COMMAND = ["-m", "vllm.entrypoints.openai.api_server"]


def upgraded(monkeypatch: pytest.MonkeyPatch) -> Platform:
    """Served, then with a release of the operator that would make other pods."""
    platform = serve()
    platform.upgraded = True
    install(monkeypatch, "--anew")
    platform.forget()
    platform.tick()
    platform.roll()
    return platform


def test_an_upgrade_of_the_operator_replaces_no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    platform = upgraded(monkeypatch)
    assert (platform.rollouts, "--anew" in args(platform)) == (1, False)
    assert [one["reason"] for one in platform.status["warnings"]] == ["UpgradeWaits"]
    assert platform.tick().actions == ()


def test_scaling_after_it_replaces_no_pod_either(monkeypatch: pytest.MonkeyPatch) -> None:
    platform = upgraded(monkeypatch)
    before = [one["metadata"]["name"] for one in platform.pods]
    platform.edit(replicas=3)
    for _ in range(3):
        platform.tick()
        platform.roll()
    assert [one["metadata"]["name"] for one in platform.pods][:2] == before
    assert (platform.rollouts, len(platform.pods), platform.tick().actions) == (1, 3, ())


def test_the_annotation_adopt_replaces_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    platform = upgraded(monkeypatch)
    platform.spec = replace(platform.spec, adopt="now")
    for _ in range(3):
        platform.tick()
        platform.roll()
    assert (platform.rollouts, "--anew" in args(platform), platform.tick().actions) == (2, True, ())

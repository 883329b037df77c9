"""Harm: an upgrade of the operator, or scaling after it, replaces pods that KServe made."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.unit.reconcile import test_llm_inference_service as llm
from tests.unit.reconcile.releases import install
from tests.unit.reconcile.test_inference_service import MADE, Platform, args, serve

from speculative_operator.domain.spec import EngineSettings
from speculative_operator.engines import images
from speculative_operator.engines.vllm import adapter, arguments

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


def program(platform: Platform | llm.Platform) -> str:
    """What the engine's container is started with."""
    made = MADE if isinstance(platform, Platform) else llm.MADE
    command = platform.children[made]["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[1:] == COMMAND
    return str(command[0])


@pytest.mark.parametrize("kind", [Platform, llm.Platform])
def test_pods_that_were_started_by_python_stay_until_an_edit_replaces_them(
    kind: type[Platform | llm.Platform], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Releases up to 0.1.0 started that, which the platform's images have."""
    with monkeypatch.context() as before:
        for module in (images, arguments):
            before.setattr(module, "API_SERVER", ("python", *COMMAND))
        platform = kind()
        assert platform.settle().actions == ()
    platform.upgraded = True
    platform.forget()
    for _ in range(3):
        platform.tick()
        platform.roll()
    assert (platform.rollouts, program(platform), platform.tick().actions) == (1, "python", ())
    assert [one["reason"] for one in platform.status["warnings"]] == ["UpgradeWaits"]
    platform.edit(engine=EngineSettings(args=("--enable-prefix-caching",)))
    platform.settle()
    assert (platform.rollouts, program(platform)) == (2, "python3")


def test_pods_without_shared_memory_stay_until_an_edit_replaces_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases up to 0.1.0 gave none to pods of one accelerator."""
    with monkeypatch.context() as before:
        before.setattr(adapter, "Target", SimpleNamespace(INFERENCE_SERVICE=None))
        platform = serve()
    platform.upgraded = True
    platform.forget()
    for _ in range(3):
        platform.tick()
        platform.roll()
    assert (platform.rollouts, "/dev/shm" in str(platform.children[MADE]), platform.tick().actions) == (1, False, ())
    platform.edit(engine=EngineSettings(args=("--enable-prefix-caching",)))
    platform.settle()
    assert (platform.rollouts, "/dev/shm" in str(platform.children[MADE])) == (2, True)

"""`speculative bench` with the real load generator: both sides are measured, and what is interrupted leaves nothing
behind but what was measured."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import LONG, NAMESPACE, Stage, until

from demo import scene
from devcluster.cluster import Cluster
from realengine import guidellm, paths
from realengine.scene import prefixes
from speculative_operator.domain import names
from speculative_operator.render.load_job import IMAGE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

COMMAND = str(Path(sys.executable).parent / "speculative")
LABEL = names.LABEL_BENCH
SHORT = ("--rates", "2", "--seconds", "12", "--repeats", "1", "--prompt-tokens", "64", "--output-tokens", "64")


def variant(suffix: str, **speculation: Any) -> scene.Variant:
    manifest = copy.deepcopy(scene.variants()[0].manifest)
    manifest["metadata"]["name"] += suffix
    manifest["spec"]["speculation"] = speculation
    return scene.Variant(suffix, manifest["metadata"]["name"], manifest)


LIVE = variant("-live", mode="Static", schedule=[[1, 255, 3], [256, 256, 0]])
PLAIN = variant("-plain", mode="Disabled")


@pytest.fixture(scope="module")
def bench_stage(enclosures: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    image, engine = guidellm.image(), paths.python()
    if image is None or engine is None:
        pytest.skip(paths.MISSING)
    visible = [*prefixes(engine), str(Path(image.entrypoint[0]).parents[1])]
    options = replace(scene.options(f"bench-{os.getpid()}", {IMAGE: image}), node_settings={"visible": visible})
    with Cluster.start(options) as cluster:
        scene.install_operator(cluster)
        cluster.kubectl("create", "namespace", NAMESPACE)
        cluster.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/warn=restricted")
        scene.apply(cluster, [LIVE, PLAIN])
        for one in (LIVE, PLAIN):
            scene.wait_ready(cluster, one.name, LONG)
        yield Stage(cluster, tmp_path_factory.mktemp("stage"))


def started(stage: Stage, *words: str) -> subprocess.Popen[str]:
    env = {**os.environ, "KUBECONFIG": str(stage.cluster.kubeconfig)}
    # Tests that a shell has put into the background ignore interrupts, and so would the command.
    command = ["env", "--default-signal=INT", COMMAND, "bench", LIVE.name, *words, "-n", NAMESPACE]
    return subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def bench(stage: Stage, *words: str) -> tuple[int, str, str]:
    with started(stage, *words) as process:
        out, err = process.communicate(timeout=900)
    print(out, err)
    return process.returncode, out, err


def running(stage: Stage) -> list[dict[str, Any]]:
    return [one for one in stage.items("jobs", LABEL) if (one["status"].get("active") or 0) > 0]


def test_the_pods_of_one_object_are_measured_with_drafts_and_without(bench_stage: Stage) -> None:
    page = bench_stage.directory / "bench.html"
    status, out, err = bench(bench_stage, *SHORT, "--html", str(page), "-o", "json")
    assert status == 0, err
    (rung,) = json.loads(out)["rungs"]
    (plain,), (drafted,) = rung["plain"], rung["drafted"]
    for step in (plain, drafted):
        assert step["done"] >= 10
        assert step["failed"] == 0
        assert step["values"]["TPOT p50"] > 0
        assert 40 < step["prompt_tokens"] < 130
    assert plain["k"] is None
    assert drafted["k"] == pytest.approx(3, abs=0.2)
    assert "plotly" in page.read_text().lower()
    assert not running(bench_stage)
    assert not bench_stage.items("configmaps", LABEL)
    annotations = bench_stage.get("specdep", LIVE.name)["metadata"].get("annotations") or {}
    assert names.ANNOTATION_SUSPEND not in annotations


def test_an_interrupted_bench_leaves_what_was_measured(bench_stage: Stage) -> None:
    process = started(bench_stage, *SHORT, "--seconds", "30")
    try:
        until(lambda: "drafts-suspended" in json.dumps(bench_stage.get("specdep", LIVE.name)["metadata"]), LONG)
        until(lambda: running(bench_stage), LONG)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "is told to stop" in err
        assert "1 of 2 steps are measured and kept" in err
    finally:
        process.kill()
        process.communicate()
    until(lambda: not running(bench_stage), LONG)
    assert not bench_stage.items("configmaps", LABEL)
    assert names.ANNOTATION_SUSPEND not in (bench_stage.get("specdep", LIVE.name)["metadata"].get("annotations") or {})
    status, out, _ = bench(bench_stage, "--show", "-o", "json")
    (rung,) = json.loads(out)["rungs"]
    assert (status, len(rung["drafted"]), len(rung["plain"])) == (0, 1, 0)


def test_an_object_that_serves_is_not_loaded_unasked(bench_stage: Stage) -> None:
    with bench_stage.under_load({PLAIN.name: PLAIN.name}, 4.0):
        status, _, err = bench(bench_stage, *SHORT, "--against", PLAIN.name)
    assert status == 1
    assert "serves requests now" in err


def test_another_object_answers_without_drafts(bench_stage: Stage) -> None:
    status, out, _ = bench(bench_stage, *SHORT, "--against", PLAIN.name)
    assert status == 0
    assert "2  TPOT p50" in out
    assert names.ANNOTATION_SUSPEND not in (bench_stage.get("specdep", LIVE.name)["metadata"].get("annotations") or {})

"""SpeculatorTraining on a real API server: what it accepts, what it refuses and how it says why, and the status."""

from __future__ import annotations

import ast
import copy
import json
import os
import shlex
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from tests.contract.server import Server
from tests.unit.training.seen import BODY, DAY, DONE, FACTS, NOW, TRAINING, serving

from devcluster import Cluster
from speculative_operator.api.crd import training_crd
from speculative_operator.domain import names
from speculative_operator.domain.formats import timestamp
from speculative_operator.domain.jobs import Phase
from speculative_operator.training.drift import compare_acceptance
from speculative_operator.training.follow import follow
from speculative_operator.training.jobs import Means
from speculative_operator.training.progress import Progress
from speculative_operator.training.seen import JobSeen, Seen

pytestmark = pytest.mark.cluster


@pytest.fixture
def server(api: client.ApiClient, installed: dict[str, Any]) -> Server:
    found = Server(api)
    found.at = (names.GROUP, names.VERSION, "default", names.TRAINING_PLURAL)
    return found


def training(name: str = "support", **changes: Any) -> dict[str, Any]:
    """A valid object with fields, named by path with _ for a dot, changed."""
    body = copy.deepcopy(BODY)
    body["metadata"] = {"name": name}
    for path, value in changes.items():
        *parts, last = path.split("__")
        node = body["spec"]
        for part in parts:
            node = node.setdefault(part, {})
        node[last] = value
    return body


GOOD: dict[str, dict[str, Any]] = {
    "least": {},
    "claims": {"verifier__model": "pvc://models/qwen", "output": "pvc://models/qwen-head", "data__prompts": "pvc://p/a/b.jsonl"},
    "data set": {"data__prompts": "hf://datasets/org/chats/data/train.jsonl", "data__revision": "v1/main"},
    "cpu": {"budget__accelerators": 0, "verifier__tensorParallelSize": 4},
    "all": {
        "data__answers": "Keep", "data__maxSamples": 5, "verifier__revision": "main", "verifier__tensorParallelSize": 1,
        "sequenceLength": 2048, "epochs": 3, "image": "trainer:1", "tryOn": "demo",
        "method": "dflash", "maxSpeculativeTokens": 7, "copyTo": "s3://bucket/heads/support",
        "weights": {"secretName": "hub", "env": [{"name": "HTTPS_PROXY", "value": "http://p"}]},
        "pod": {"nodeSelector": {"pool": "a"}, "tolerations": [{"key": "gpu"}], "imagePullSecrets": ["l"]},
    },
}  # fmt: skip
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "s3 output": ({"output": "s3://bucket/x"}, 'output is "s3://bucket/x": write pvc://CLAIM/PATH'),
    "copy to a whole bucket": ({"copyTo": "s3://bucket"}, 'copyTo is "s3://bucket": write s3://BUCKET/PATH'),
    "copy elsewhere": ({"copyTo": "pvc://m/a"}, 'copyTo is "pvc://m/a": write s3://BUCKET/PATH'),
    "whole claim": ({"output": "pvc://models"}, 'output is "pvc://models": add a folder'),
    "over the verifier": (
        {"verifier__model": "pvc://m/a/b", "output": "pvc://m/a"},
        'output is "pvc://m/a", which holds the',
    ),
    "in the verifier": (
        {"verifier__model": "pvc://m/a", "output": "pvc://m/a/b"},
        'output is "pvc://m/a/b", which holds the',
    ),
    "over the prompts": ({"data__prompts": "pvc://m/a/p.jsonl", "output": "pvc://m/a"}, 'output is "pvc://m/a", which'),
    "hub model": (
        {"data__prompts": "hf://org/set"},
        "write pvc://CLAIM/FILE.jsonl, or hf://datasets/ORGANISATION/NAME",
    ),
    "whole data set": ({"data__prompts": "hf://datasets/org/set"}, "write pvc://CLAIM/FILE.jsonl, or hf://datasets"),
    "version in the address": ({"data__prompts": "hf://datasets/org/set@v1/a.jsonl"}, "with any version in revision"),
    "parquet": (
        {"data__prompts": "hf://datasets/org/set/a.parquet"},
        'prompts is "hf://datasets/org/set/a.parquet": write pvc://CLAIM/FILE.jsonl',
    ),
    "revision of a claim": (
        {"data__revision": "main"},
        'revision is "main" but prompts is "pvc://prompts/support.jsonl"',
    ),
    "json": ({"data__prompts": "pvc://p/a.json"}, 'prompts is "pvc://p/a.json": write pvc://CLAIM/FILE.jsonl'),
    "no jsonl": ({"data__prompts": "pvc://p/a.csv"}, 'prompts is "pvc://p/a.csv": write pvc://CLAIM/FILE.jsonl'),
    "registry": ({"verifier__model": "oci://r/m:1"}, 'model is "oci://r/m:1": write hf://ORGANISATION/MODEL or pvc'),
    "revision": ({"verifier__model": "pvc://m/a", "verifier__revision": "main"}, "remove revision"),
    "too few": ({"budget__accelerators": 1}, "accelerators is 1 but verifier.tensorParallelSize is 1: write a larger"),
    "no hours": ({"budget__hours": 0}, "should be greater than or equal to 1"),
    "method": ({"method": "mtp"}, 'Unsupported value: "mtp": supported values: "eagle3", "peagle", "dflash"'),
    "one token in one pass": (
        {"method": "peagle", "maxSpeculativeTokens": 1},
        "maxSpeculativeTokens is 1 but method is peagle",
    ),
    "K": ({"maxSpeculativeTokens": 32}, "should be less than or equal to 31"),
    "unknown field": ({"data__split": "train"}, 'unknown field "spec.data.split"'),
    "hostile name": ({"output": "pvc://c/x'; rm -rf $HOME"}, "write one of hf://"),
    "up": ({"output": "pvc://c/../x"}, "write one of hf://"),
}


@pytest.mark.parametrize("case", GOOD)
def test_accepts(server: Server, case: str) -> None:
    created = server.create(training(**GOOD[case]))
    assert created["spec"]["epochs"] >= 1


@pytest.mark.parametrize("case", BAD)
def test_refuses_and_says_why(server: Server, case: str) -> None:
    changes, why = BAD[case]
    assert why in json.dumps(server.refusal(training(**changes)), ensure_ascii=False).replace('\\"', '"')


@pytest.mark.parametrize("name", ["a" * 51, "1a", "a.b"])
def test_refuses_names_that_pods_cannot_carry(server: Server, name: str) -> None:
    assert "use at most 50 lower-case letters" in server.refusal(training(name))["message"]


def test_a_spec_stays_and_every_status_is_of_the_schema(server: Server) -> None:
    server.create(training("stays"), keep=True)
    with pytest.raises(ApiException) as caught:
        server.custom.patch_namespaced_custom_object(*server.at, "stays", {"spec": {"epochs": 1}})
    assert "spec cannot be changed" in str(caught.value.body)
    looked = JobSeen(Phase.SUCCEEDED, results={"inspect": FACTS, "look": {"rows": 12}})
    running = JobSeen(Phase.RUNNING, running="train", started=NOW, pod_started=NOW)
    status: dict[str, Any] = {}
    passed: list[dict[str, Any]] = [
        {}, {"look": looked}, {"train": running, "progress": Progress(5, 9, 1.0, 1.2)},
        {"train": running, "progress": Progress(7, 9, 1.0, 1.2)}, {"train": JobSeen(Phase.SUCCEEDED)},
    ]  # fmt: skip
    for number, told in enumerate(passed):
        step = follow(Seen(TRAINING, status, **told), Means("o"), NOW + 60 * number)
        status = server.write_status("stays", {**dict.fromkeys(status), **step.status})["status"]
    assert status["conditions"][0]["status"] == "True"


def test_the_status_after_acceptance_fell_and_the_training_that_it_proposes_are_accepted(server: Server) -> None:
    server.create(training("fell"), keep=True)
    status = DONE
    for days in (0.0, 7.0):
        now = NOW + days * DAY
        served = serving("1.60", "20.0%", observedAt=timestamp(now))
        found = compare_acceptance(replace(TRAINING, name="fell", namespace="default"), status, [served], now)
        status = server.write_status("fell", found)["status"]
    assert [one["reason"] for one in status["conditions"]] == ["Trained", "AcceptanceFell"]
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    words = shlex.split(status["retrainWith"])
    program = words[words.index("jq") + 1]
    made = subprocess.run(
        ["jq", program], input=json.dumps(server.get("fell")), capture_output=True, text=True, check=True
    )
    created = server.create(json.loads(made.stdout))
    assert created["spec"] == {
        **training()["spec"], **created["spec"], "output": "pvc://models/support-20261205", "tryOn": "demo",
        "data": {**created["spec"]["data"], "prompts": "pvc://prompts/support-20261205.jsonl"},
    }  # fmt: skip


PIPELINE = Path(__file__).resolve().parents[2] / "examples" / "pipelines" / "train_speculator.py"


@pytest.mark.parametrize("trained", [True, False])
def test_the_step_of_the_pipeline_waits_for_its_training_and_gives_its_speculator(
    server: Server, bare_cluster: Cluster, tmp_path: Path, trained: bool
) -> None:
    (script,) = (
        ast.literal_eval(one.value)
        for one in ast.parse(PIPELINE.read_text()).body
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "STEP"
    )
    run, out = f"{trained}-7f4c9a1e-0b1d-4d3c-9f50-2f6d0c1f5a11".lower(), tmp_path / "outputs" / "speculator"
    given = ["hf://Qwen/Qwen3-8B", "hf://datasets/org/chats/a.jsonl", "pvc://models/support", "2", "12", str(out)]
    env = {
        **os.environ, "KUBECONFIG": str(bare_cluster.kubeconfig),
        "PATH": f"{bare_cluster.binaries.kubectl.parent}:{os.environ['PATH']}",
    }  # fmt: skip
    command = ["sh", "-c", script, "train", run, *given]
    with subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as step:
        deadline = time.monotonic() + 60
        while step.poll() is None and time.monotonic() < deadline:
            try:
                spec = server.get(f"train-{run}")["spec"]
                break
            except ApiException:
                time.sleep(0.2)
        assert (spec["verifier"]["model"], spec["data"]["prompts"], spec["output"]) == tuple(given[:3])
        assert (spec["budget"], step.poll()) == ({"accelerators": 2, "hours": 12}, None), "it waits"
        told = {"type": "Trained", "status": str(trained), "reason": "R", "message": "what happened"}
        told["lastTransitionTime"] = timestamp(NOW)
        found = {"speculator": "pvc://models/support/model"} if trained else {}
        server.write_status(f"train-{run}", {"endedAt": timestamp(NOW), "conditions": [told], **found})
        said, _ = step.communicate(timeout=60)
    assert "what happened" in said
    assert (step.returncode == 0) is trained
    assert (out.read_text() if out.exists() else "") == found.get("speculator", "")
    again = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert again.returncode == step.returncode, "a step that is tried again finds its training"


def test_the_server_keeps_the_definition_as_written(api: client.ApiClient, installed: dict[str, Any]) -> None:
    of = ("apiextensions.k8s.io", "v1", "customresourcedefinitions", f"{names.TRAINING_PLURAL}.{names.GROUP}")
    found: Any = client.CustomObjectsApi(api).get_cluster_custom_object(*of)
    assert found["spec"]["versions"] == training_crd()["spec"]["versions"]

"""A SpeculatorTraining on a cluster with a node, whose trainer is an emulation: two Jobs, the real programs of the
operator's image, pods killed on the way, and refusals that take no accelerator."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.hublab import MODELS, folder_of_models
from tests.cluster.operatorlab import OperatorLab, until
from tests.cluster.trainer_emulation import images

from devcluster import Cluster, ClusterOptions, Image
from speculative_operator.domain import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

Json = dict[str, Any]
LONG = 240.0
EPOCHS = 4
ROWS = "".join(f"{json.dumps({'prompt': f'Tell of number {number}.'})}\n" for number in range(12))
FILL = f"""set -eu
cp -r {MODELS}/target /models/target
mkdir /models/theirs && echo mine > /models/theirs/notes
mkdir /models/out && ln -s out /models/link
printf %s "$ROWS" > /models/prompts.jsonl
head -c 40 /models/prompts.jsonl > /models/bad.jsonl
chmod -R a+rwX /models
"""


@pytest.fixture(scope="module")
def lab(enclosures: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorLab]:
    """An operator that trains, and the claim `models` with a verifier and prompts."""
    with folder_of_models(f"trainer-{os.getpid()}") as folder:
        options = ClusterOptions(
            name=f"train-{os.getpid()}", images={**images(folder), "shell": Image(("/bin/sh",))}, prometheus=False,
            node_settings={"crashBackoffSeconds": 1, "syncSeconds": 8},
        )  # fmt: skip
        with Cluster.start(options) as cluster:
            lab = OperatorLab(cluster, tmp_path_factory.mktemp("operator"))
            lab.install()
            cluster.wait_for_kinds(f"{names.TRAINING_PLURAL}.{names.GROUP}")
            lab.enter()
            _fill(lab)
            with lab.operator(job_image="operator", trainer_image="trainer") as running:
                yield lab
            assert [one for one in running.errors() if one["logger"].startswith("speculative_operator")] == []


def _fill(lab: OperatorLab) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volume = {"name": "models", "persistentVolumeClaim": {"claimName": "models"}}
    container = {
        "name": "fill", "image": "shell", "args": ["-c", FILL], "env": [{"name": "ROWS", "value": ROWS}],
        "volumeMounts": [{"name": "models", "mountPath": "/models"}],
    }  # fmt: skip
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
    meta = {"namespace": lab.namespace}
    lab.apply(
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {**meta, "name": "models"}, "spec": claim}
    )
    lab.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, "name": "fill"}, "spec": pod})
    until(
        "the claim is filled",
        lambda: (lab.get("pod", "fill") or {}).get("status", {}).get("phase") == "Succeeded",
        LONG,
    )


def train(lab: OperatorLab, name: str, **changes: Any) -> None:
    spec = {
        "verifier": {"model": "pvc://models/target"}, "data": {"prompts": "pvc://models/prompts.jsonl"},
        "output": f"pvc://models/out/{name}", "budget": {"accelerators": 0, "hours": 1}, "epochs": EPOCHS,
        "sequenceLength": 192, **changes,
    }  # fmt: skip
    meta = {"name": name, "namespace": lab.namespace}
    lab.apply({"apiVersion": names.API_VERSION, "kind": names.TRAINING_KIND, "metadata": meta, "spec": spec})


def status(lab: OperatorLab, name: str) -> Json:
    return dict((lab.get(names.TRAINING_PLURAL, name) or {}).get("status") or {})


def reason(lab: OperatorLab, name: str) -> str:
    conditions: list[Json] = status(lab, name).get("conditions") or [{}]
    return str(conditions[0].get("reason", ""))


def pods(lab: OperatorLab, job: str) -> list[str]:
    found = lab.listed("pods", f"batch.kubernetes.io/job-name={job}")
    return [pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"]]


def said(lab: OperatorLab, job: str) -> str:
    """What the trainer of the newest pod of a Job has logged."""
    found = [
        lab.cluster.kubectl("logs", pod, "-n", lab.namespace, "-c", "train", check=False) for pod in pods(lab, job)
    ]
    return "".join(one.stdout for one in found)


def test_a_pod_that_is_killed_twice_ends_as_one_that_was_not(lab: OperatorLab) -> None:
    train(lab, "head", tryOn="demo")
    for epoch in (2, 3):
        until(f"epoch {epoch}", lambda: f"epoch {epoch}/{EPOCHS} started" in said(lab, "head-train"), LONG)  # noqa: B023
        lab.delete("pod", pods(lab, "head-train")[0], "--grace-period=0", "--force")
    until("the end", lambda: status(lab, "head").get("stage") in ("Done", "Failed"), LONG)
    found = status(lab, "head")
    assert found["conditions"][0]["reason"] == "Trained", found
    assert (found["speculator"], found["expectedAcceptance"]) == ("pvc://models/out/head/model", "1.75")
    assert found["dataDigest"].startswith("sha256:")
    assert "kubectl patch specdep demo" in found["tryWith"]
    assert lab.get(names.PLURAL, "demo") is None, "nothing is started by itself"
    events = {one["reason"] for one in lab.listed("events.events.k8s.io") if one["regarding"]["name"] == "head"}
    assert {"Preparing", "Training", "Trained"} <= events


def test_what_is_wrong_is_told_before_a_job_takes_accelerators(lab: OperatorLab) -> None:
    train(lab, "bad", data={"prompts": "pvc://models/bad.jsonl"})
    train(lab, "missing", data={"prompts": "pvc://models/none.jsonl"})
    train(lab, "foreign", output="pvc://models/theirs")
    train(lab, "link", output="pvc://models/link")
    told = {"bad": "BadData", "missing": "BadData", "foreign": "OutputForeign", "link": "OutputForeign"}
    for name, why in told.items():
        until(f"{name}: {why}", lambda: reason(lab, name) == why, LONG)  # noqa: B023
        assert lab.get("job", f"{name}-train") is None


def test_a_deleted_object_takes_its_jobs_with_it_and_leaves_the_output(lab: OperatorLab) -> None:
    lab.delete(names.TRAINING_PLURAL, "head")
    until("no Job is left", lambda: not any(lab.get("job", f"head-{one}") for one in ("look", "train")), LONG)
    train(lab, "head")
    until("the same training finds what it made", lambda: reason(lab, "head") == "Trained", LONG)

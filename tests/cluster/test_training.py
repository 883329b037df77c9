"""A SpeculatorTraining on a cluster with a node, whose trainer is an emulation: two Jobs, the real programs of the
operator's image, pods killed on the way, refusals that take no accelerator, and a speculator that serves until other
text comes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.hublab import ENGINE_IMAGE, MODELS, PYTHON, HubLab, folder_of_models
from tests.cluster.operatorlab import OperatorLab, Process, until
from tests.cluster.trainer_emulation import images

from demo import scene
from demo.sender import Sender, evenly
from devcluster import Cluster, ClusterOptions, Image, toolchain
from speculative_operator.domain import names
from speculative_operator.domain.formats import timestamp

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

Json = dict[str, Any]
LONG = 240.0
EPOCHS = 4
ROWS = "".join(f"{json.dumps({'prompt': f'Tell of number {number}.'})}\n" for number in range(12))
FILL = f"""set -eu
cp -r {MODELS}/target /models/target
mkdir /models/theirs && echo mine > /models/theirs/notes
mkdir /models/out && ln -s out /models/link && ln -s /tmp /models/away
printf %s "$ROWS" > /models/prompts.jsonl
head -c 40 /models/prompts.jsonl > /models/bad.jsonl
chmod -R a+rwX /models
"""


@pytest.fixture(scope="module")
def lab(enclosures: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorLab]:
    """A cluster without an operator, and the claim `models` with a verifier and prompts."""
    with folder_of_models(f"trainer-{os.getpid()}") as folder:
        options = ClusterOptions(
            name=f"train-{os.getpid()}", accelerators={"nvidia.com/gpu": 2}, scrape_interval_seconds=2,
            images={
                **images(folder), **PYTHON, "shell": Image(("/bin/sh",)), ENGINE_IMAGE: scene.images()[ENGINE_IMAGE],
                "versitygw": Image((str(toolchain.program(toolchain.VERSITYGW)),)),
            },
            node_settings={"crashBackoffSeconds": 1, "syncSeconds": 8},
        )  # fmt: skip
        with Cluster.start(options) as cluster:
            lab = OperatorLab(cluster, tmp_path_factory.mktemp("operator"))
            lab.install()
            cluster.wait_for_kinds(f"{names.TRAINING_PLURAL}.{names.GROUP}")
            lab.enter()
            _fill(lab)
            yield lab


def at_work(lab: OperatorLab) -> AbstractContextManager[Process]:
    """An operator that trains and sees figures."""
    url = {"prometheus_url": lab.cluster.prometheus_url, "prometheus_timeout_seconds": "1.5"}
    return lab.operator(job_image="operator", trainer_image="trainer", check_pairs="true", **url)


@pytest.fixture
def operator(lab: OperatorLab) -> Iterator[None]:
    with at_work(lab) as running:
        yield
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


@pytest.mark.usefixtures("operator")
def test_a_pod_that_is_killed_twice_ends_as_one_that_was_not(lab: OperatorLab) -> None:
    train(lab, "head", tryOn="demo")
    for epoch in (2, 3):
        until(f"epoch {epoch}", lambda: f"epoch {epoch}/{EPOCHS} started" in said(lab, "head-train"), LONG)  # noqa: B023
        lab.delete("pod", pods(lab, "head-train")[0], "--grace-period=0", "--force")
    until("the end", lambda: status(lab, "head").get("stage") in ("Done", "Failed"), LONG)
    found = status(lab, "head")
    assert found["conditions"][0]["reason"] == "Trained", found
    assert (found["speculator"], found["expectedAcceptance"]) == ("pvc://models/out/head/model", "2.19")
    assert found["dataDigest"].startswith("sha256:")
    assert "kubectl patch specdep demo" in found["tryWith"]
    assert lab.get(names.PLURAL, "demo") is None, "nothing is started by itself"
    events = {one["reason"] for one in lab.listed("events.events.k8s.io") if one["regarding"]["name"] == "head"}
    assert {"Preparing", "Training", "Trained"} <= events


@pytest.mark.usefixtures("operator")
def test_what_is_wrong_is_told_before_a_job_takes_accelerators(lab: OperatorLab) -> None:
    train(lab, "bad", data={"prompts": "pvc://models/bad.jsonl"})
    train(lab, "missing", data={"prompts": "pvc://models/none.jsonl"})
    train(lab, "foreign", output="pvc://models/theirs")
    train(lab, "link", output="pvc://models/link")
    train(lab, "away", output="pvc://models/away/from/here")
    told = {"bad": "BadData", "missing": "BadData", **dict.fromkeys(("foreign", "link", "away"), "OutputForeign")}
    for name, why in told.items():
        until(f"{name}: {why}", lambda: reason(lab, name) == why, LONG)  # noqa: B023
        assert lab.get("job", f"{name}-train") is None


@pytest.mark.usefixtures("operator")
def test_a_deleted_object_takes_its_jobs_with_it_and_leaves_the_output(lab: OperatorLab) -> None:
    lab.delete(names.TRAINING_PLURAL, "head")
    until("no Job is left", lambda: not any(lab.get("job", f"head-{one}") for one in ("look", "train")), LONG)
    train(lab, "head")
    until("the same training finds what it made", lambda: reason(lab, "head") == "Trained", LONG)


def bucket(lab: OperatorLab, folder: Path) -> str:
    """Address of an S3 service in the namespace, over a folder with the bucket `heads`; its keys are in the Secret
    `keys`."""
    for path in ("served", "served/heads", "about"):
        (folder / path).mkdir()
        (folder / path).chmod(0o777)  # the pod's user is another
    args = ["--port", "0.0.0.0:7070", "--access", "loopback", "--secret", "loopback-secret", "--quiet"]
    args += ["posix", "--sidecar", str(folder / "about"), str(folder / "served")]
    probe = {"tcpSocket": {"port": 7070}, "periodSeconds": 1}
    container: Json = {"name": "server", "image": "versitygw", "args": args, "readinessProbe": probe}
    container["volumeMounts"] = [{"name": "here", "mountPath": str(folder)}]
    volumes = [{"name": "here", "hostPath": {"path": str(folder)}}]
    pod = {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 1}
    keys = {"AWS_ACCESS_KEY_ID": "loopback", "AWS_SECRET_ACCESS_KEY": "loopback-secret", "AWS_REGION": "us-east-1"}
    named = {"namespace": lab.namespace, "name": "bucket", "labels": {"app": "bucket"}}
    for made in (
        {"kind": "Pod", "metadata": named, "spec": pod},
        {"kind": "Service", "metadata": named, "spec": {"selector": {"app": "bucket"}, "ports": [{"port": 7070}]}},
        {"kind": "Secret", "metadata": {**named, "name": "keys"}, "stringData": keys},
    ):
        lab.apply({"apiVersion": "v1", **made})
    lab.cluster.kubectl("wait", "--for=condition=Ready", "--timeout=240s", "-n", lab.namespace, "pod/bucket")
    return f"http://bucket.{lab.namespace}.svc:7070"


def hub_training(lab: OperatorLab, **changes: Any) -> None:
    """Have no training `hub`, and then a new one."""
    if lab.get(names.TRAINING_PLURAL, "hub"):
        lab.delete(names.TRAINING_PLURAL, "hub")
        until("no Job is left", lambda: not any(lab.get("job", f"hub-{one}") for one in ("look", "train")), LONG)
    train(lab, "hub", **changes)


@pytest.mark.usefixtures("operator")
def test_prompts_of_a_hub_make_a_speculator_in_a_bucket_and_a_move_of_them_is_told(lab: OperatorLab) -> None:
    with folder_of_models(f"data-{os.getpid()}") as folder:
        file = folder / "datasets" / "org" / "chats" / "train.jsonl"
        file.parent.mkdir(parents=True)
        file.write_text(ROWS)
        reached = {"HF_ENDPOINT": f"http://{HubLab(lab, 'hub', folder).host}", "AWS_ENDPOINT_URL": bucket(lab, folder)}
        env = [{"name": name, "value": value} for name, value in reached.items()]
        asked = {"data": {"prompts": "hf://datasets/org/chats/train.jsonl"}, "copyTo": "s3://heads/team/chats"}
        copied, foreign = folder / "served" / "heads" / "team" / "chats", folder / "served" / "heads" / "theirs"
        foreign.mkdir()
        (foreign / "config.json").write_text("{}")
        asked["weights"] = {"env": env, "secretName": "keys"}
        hub_training(lab, **{**asked, "copyTo": "s3://heads/theirs"})
        until("another's folder is refused", lambda: reason(lab, "hub") == "OutputForeign", LONG)
        assert lab.get("job", "hub-train") is None
        assert [one.name for one in foreign.iterdir()] == ["config.json"]
        hub_training(lab, **asked)
        until("the end", lambda: status(lab, "hub").get("stage") in ("Done", "Failed"), LONG)
        found = status(lab, "hub")
        assert reason(lab, "hub") == "Trained", found
        assert (len(found["dataVersion"]), found["samples"]) == (40, 12)
        assert found["speculator"] == "s3://heads/team/chats"
        assert {"config.json", "model.safetensors", "README.md"} <= {one.name for one in copied.iterdir()}
        file.write_text(ROWS + ROWS)
        hub_training(lab, **asked)
        until("it is told", lambda: reason(lab, "hub") == "OutputForeign", LONG)
        told = status(lab, "hub")["conditions"][0]["message"]
        assert f"set data.revision to {found['dataVersion']} to go on" in told
        assert lab.get("job", "hub-train") is None


def serve(lab: OperatorLab, text: str) -> None:
    """The speculator that was trained, in an engine to which requests of this kind come: by it the emulator knows the
    acceptance."""
    spec = {
        "verifier": {"model": "pvc://models/target", "servedName": "demo", "maxModelLen": 2048, "maxNumSeqs": 8},
        "speculator": {"method": "eagle3", "model": "pvc://models/out/head/model"},
        "speculation": {"mode": "Static", "numSpeculativeTokens": 2, "maxSpeculativeTokens": 2},
        "engine": {"image": ENGINE_IMAGE, "version": "0.32.0", "env": [{"name": "EMULATOR_WORKLOAD", "value": text}]},
        "accelerator": {"product": "H100-SXM"},
    }
    meta = {"name": "demo", "namespace": lab.namespace}
    lab.apply({"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "spec": spec})


def serve_until(lab: OperatorLab, what: str, told: Callable[[float], bool]) -> None:
    """Send requests until the acceptance length in the status of `demo` is as `told` wants it."""

    def length() -> float:
        figures = ((lab.get(names.PLURAL, "demo") or {}).get("status") or {}).get("speculation") or {}
        return float(figures.get("acceptanceLength") or "nan")

    def ready() -> bool:
        generation = (lab.get(names.PLURAL, "demo") or {})["metadata"]["generation"]
        found = lab.condition("Ready", "demo")
        return found.get("status") == "True" and found.get("observedGeneration") == generation

    until("demo serves", ready, LONG)
    service = (lab.get("service", "demo") or {})["spec"]
    url = f"http://{service['clusterIP']}:{service['ports'][0]['port']}"
    with Sender(
        lab.cluster, lab.directory / f"{what}.jsonl", {"demo": ("demo", url)}, evenly(600, 4, 100, 100)
    ) as sent:
        until(f"demo accepts {what}", lambda: told(length()), LONG, 1.0)
        sent.finish(LONG)


def acceptance(lab: OperatorLab) -> str:
    found: list[Json] = status(lab, "head").get("conditions") or []
    return next((str(one["reason"]) for one in found if one["type"] == "AcceptanceHolds"), "")


def test_acceptance_that_falls_for_a_week_is_told_with_a_command_that_trains_anew(lab: OperatorLab) -> None:
    """After the tests above, by which `head` is trained. An operator that starts looks at once, and then every ten
    minutes; the week is one by what the status says of its beginning."""
    serve(lab, "Code")
    with at_work(lab):
        serve_until(lab, "as expected", lambda length: length > 2.0)
    with at_work(lab):
        until("acceptance holds", lambda: acceptance(lab) == "AcceptanceHolds", LONG)
        serve(lab, "Creative")
        serve_until(lab, "less", lambda length: length < 1.9)
    with at_work(lab):
        below = until("the week begins", lambda: status(lab, "head").get("acceptanceBelowSince"), LONG)
        assert acceptance(lab) == "AcceptanceHolds"
    now = time.time()
    assert below <= timestamp(now)
    ago = {"endedAt": timestamp(now - 9 * 86_400), "acceptanceBelowSince": timestamp(now - 7 * 86_400 - 60)}
    lab.patch(names.TRAINING_PLURAL, "head", {"status": ago}, "--subresource=status")
    with at_work(lab):
        until("acceptance fell", lambda: acceptance(lab) == "AcceptanceFell", LONG)
    events = [one for one in lab.listed("events.events.k8s.io") if one["reason"] == "AcceptanceFell"]
    assert [(one["type"], one["regarding"]["name"]) for one in events] == [("Warning", "head")]
    assert not [one for one in lab.listed(names.TRAINING_PLURAL) if one["metadata"]["name"].startswith("head-")]
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    command = status(lab, "head")["retrainWith"]
    env = {**os.environ, "KUBECONFIG": str(lab.cluster.kubeconfig)}
    done = subprocess.run(["/bin/sh", "-c", command], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    made = lab.get(names.TRAINING_PLURAL, f"head-{timestamp(now - 60)[:10].replace('-', '')}") or {}
    assert made["spec"]["tryOn"] == "demo"

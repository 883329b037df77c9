"""`make e2e-training`: a SpeculatorTraining on a cluster with the real vLLM and the real library, on CPUs.

The small verifier answers prompts, a head is trained on its answers, and the training's pod is lost twice meanwhile.
The result is then a canary beside an untrained head and is promoted (`promote`); of prompts that were held out, three
times as many of its drafts must be accepted at least. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path

from demo import hub
from demo.scene import OPERATOR_NAMESPACE, SceneError, install_operator
from devcluster.cluster import Cluster
from devcluster.errors import DevClusterError
from devcluster.options import Image
from devcluster.progress import Reporter
from realengine import paths, prompts, scene, trainer_image
from realengine.e2e import promote
from realengine.e2e.hands import Hands, Json
from realengine.install import InstallError, installed
from realengine.serving import CPU_FLAGS
from realengine.training import LEAST_TIMES, TOKENS
from speculative_operator.domain import names

NAME, MODELS, TRAINED = "tiny-head", "models", "trained"
TRAINER, TOOL = "speculative-trainer:dev", "tool:dev"
HEADS = {"untrained": f"pvc://{MODELS}/{hub.HEAD}", "trained": f"pvc://{TRAINED}/tiny/model"}
SPECULATION: Json = {
    "untrained": {"mode": "Static", "numSpeculativeTokens": 3, "maxSpeculativeTokens": 3},
    "trained": {"mode": "Auto", "maxSpeculativeTokens": 3},
}
STAGES = {"Answering": "step", "Training": "expectedAcceptance"}
"""Stage in which the pod is lost -> the field of status that must tell something before."""
TRAINING_SECONDS = 1200.0


def claim(name: str) -> Json:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def training(count: int) -> Json:
    """As a user writes it, for a cluster without accelerators."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.TRAINING_KIND,
        "metadata": {"name": NAME},
        "spec": {
            "verifier": {"model": f"pvc://{MODELS}/{hub.TARGET}"},
            "data": {"prompts": f"pvc://{MODELS}/prompts.jsonl", "maxSamples": count},
            "budget": {"accelerators": 0, "hours": 1},
            "output": f"pvc://{TRAINED}/tiny",
            "sequenceLength": TOKENS,
            "epochs": 3,
            "image": TRAINER,
        },
    }


def deployment_of(name: str) -> Json:
    """The verifier with one of the heads."""
    verifier = {"model": f"pvc://{MODELS}/{hub.TARGET}", "servedName": "tiny", "maxModelLen": 512, "dtype": "float32"}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name},
        "spec": {
            "verifier": {**verifier, "maxNumSeqs": scene.MAX_NUM_SEQS},
            "speculator": {"method": "eagle3", "model": HEADS[name]},
            "speculation": SPECULATION[name],
            "engine": {"version": paths.VLLM, "image": scene.IMAGE, "args": list(CPU_FLAGS)},
            "accelerator": {"perReplica": 0},
        },
    }


class Run(Hands):
    """The training."""

    def fill(self, source: Path) -> None:
        """Claims with models and prompts, as a user has them."""
        self.apply(claim(MODELS), claim(TRAINED))
        copy = f"import shutil; shutil.copytree({str(source)!r}, '/to', dirs_exist_ok=True)"
        mount = {"name": "to", "mountPath": "/to"}
        container = {"name": "fill", "image": TOOL, "args": ["-c", copy], "volumeMounts": [mount]}
        volume = {"name": "to", "persistentVolumeClaim": {"claimName": MODELS}}
        spec = {"containers": [container], "volumes": [volume], "restartPolicy": "Never"}
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "fill"}, "spec": spec})
        self.until("claims are filled", 120, lambda: self.get("pod", "fill")["status"].get("phase") == "Succeeded")

    def status(self) -> Json:
        """Of the training. Raises SceneError where it failed."""
        status: Json = self.get("speculatortraining", NAME).get("status") or {}
        if status.get("stage") == "Failed":
            raise SceneError(f"the training failed: {status['conditions']}")
        return status

    def lose(self, stage: str) -> None:
        """Delete the pod at once while it is at this stage and has got somewhere."""
        field = STAGES[stage]

        def there() -> bool:
            status = self.status()
            return status.get("stage") == stage and bool(status.get(field))

        self.until(f"{stage} is under way", TRAINING_SECONDS, there)
        self.report(f"{stage}: the pod is lost; status {self.status()}")
        job = f"batch.kubernetes.io/job-name={NAME}-train"
        self.cluster.kubectl("delete", "pod", "-n", scene.NAMESPACE, "-l", job, "--grace-period=0", "--force")

    def finished(self) -> Json:
        """Status at the end of the training."""
        self.until("the training is done", TRAINING_SECONDS, lambda: self.status().get("stage") == "Done")
        return self.status()


def keep_logs(cluster: Cluster, out: Path) -> None:
    """What one wants to see when it did not end well."""
    ours = f"app.kubernetes.io/name={names.OPERATOR}"
    asked = {
        "operator.log": ("logs", "-n", OPERATOR_NAMESPACE, "-l", ours, "--tail=-1"),
        "training.log": (
            *("logs", "-n", scene.NAMESPACE, "-l", names.LABEL_TRAINING, "--tail=-1", "--prefix"),
            *("--all-containers", "--ignore-errors"),
        ),
        "objects.yaml": ("get", "speculatortrainings,jobs,pods,events", "-n", scene.NAMESPACE, "-o", "yaml"),
    }
    for name, words in asked.items():
        told = cluster.kubectl(*words, check=False)
        (out / name).write_text(told.stdout + told.stderr)


def run(given: argparse.Namespace) -> Json:
    """All of it; the last line."""
    report = Reporter()
    python, trainer = installed(report), trainer_image.image()
    assert trainer is not None
    shutil.rmtree(given.out, ignore_errors=True)
    shutil.copytree(paths.models(), given.out / "models")
    prompts.write(given.out / "models" / "prompts.jsonl", given.prompts)
    tool = Image((sys.executable,), {})
    options = scene.options(given.name, python)
    more = {TRAINER: trainer, TOOL: tool}
    visible = [*options.node_settings["visible"], str(trainer_image.folder())]
    settings = {**options.node_settings, "visible": visible}
    with Cluster.start(replace(options, images={**options.images, **more}, node_settings=settings), report) as cluster:
        try:
            install_operator(cluster, check_pairs=True)
            cluster.kubectl("create", "namespace", scene.NAMESPACE)
            steps = Run(cluster, report)
            steps.fill(given.out / "models")
            steps.apply(training(given.prompts))
            for stage in list(STAGES)[: given.losses]:
                steps.lose(stage)
            status, seconds = steps.finished(), steps.seconds
            report(f"trained after {seconds} s: {status}")
            tried = promote.play(steps, deployment_of, "trained", "untrained", given.out)
        finally:
            keep_logs(cluster, given.out)
    shares = tried["accepted"]
    ok = shares["trained"] >= LEAST_TIMES * max(shares["untrained"], 0.01) and promote.is_well(tried)
    told = {"ok": ok, "seconds": seconds, "losses": given.losses, "status": status}
    return {**told, **tried, "all_seconds": steps.seconds}


def main() -> int:
    parser = argparse.ArgumentParser(prog="realengine.e2e.train", description=__doc__)
    parser.add_argument("--name", default="e2e-training", help="name of the cluster")
    parser.add_argument("--out", type=Path, default=paths.ROOT / "build" / "e2e-training", help="folder of logs")
    parser.add_argument("--prompts", type=int, default=200, metavar="N")
    parser.add_argument("--losses", type=int, default=2, choices=range(3), help="times that the pod is lost")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        told = run(parser.parse_args())
    except KeyboardInterrupt:
        print("interrupted: nothing is left behind", file=sys.stderr)
        return 130
    except (InstallError, DevClusterError, SceneError) as error:
        told = {"ok": False, "error": str(error)}
    print(json.dumps(told), flush=True)
    return 0 if told["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())

"""Sources of models as pods of a cluster with a node, and objects whose pairs the operator reads there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cluster.operatorlab import OperatorLab, until

from demo.scene import images
from devcluster import Image
from speculative_operator.domain import names

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "dev" / "data" / "models"
TARGET, DRAFT = "target", "draft"
OPERATOR_IMAGE, ENGINE_IMAGE = images()
PYTHON = {"python": Image((sys.executable,))}
LONG = 240.0
"""seconds: a machine that does much else at the same time takes its time, and this is done by several pods in turn."""


@contextmanager
def folder_of_models(name: str) -> Iterator[Path]:
    """A folder for a server of models, which fills it. Not below /tmp, which pods have of their own."""
    folder = ROOT / "build" / name
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


class HubLab:
    """A server of models in the namespace of `lab`, which the test has entered."""

    def __init__(self, lab: OperatorLab, program: str, folder: Path) -> None:
        """`program` is a module of dev/modelservers, `folder` what it serves."""
        self.lab = lab
        self.folder = folder
        code = f"import sys; sys.path.insert(0, sys.argv.pop(1)); from modelservers.{program} import main; main()"
        args = ["-c", code, str(ROOT / "dev")]
        args += ["--folder", str(folder), "--host", "0.0.0.0", "--port", "8080"]
        probe = {"httpGet": {"path": "/_control", "port": 8080}, "periodSeconds": 1}
        container = {"name": "server", "image": "python", "args": args, "readinessProbe": probe}
        pod = {"kind": "Pod", "spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
        service = {"kind": "Service", "spec": {"selector": {"app": "models"}, "ports": [{"port": 8080}]}}
        meta = {"name": "models", "namespace": lab.namespace, "labels": {"app": "models"}}
        items = [{"apiVersion": "v1", "metadata": meta, **one} for one in (pod, service)]
        lab.apply({"apiVersion": "v1", "kind": "List", "items": items})
        lab.cluster.kubectl("wait", "--for=condition=Ready", "--timeout=240s", "-n", lab.namespace, "pod/models")

    @property
    def host(self) -> str:
        """HOST:PORT by which pods reach it."""
        return f"models.{self.lab.namespace}.svc:8080"

    def order(self, *faults: Json) -> None:
        """What it does wrong from now on."""
        address = (self.lab.get("service", "models") or {})["spec"]["clusterIP"]
        code = "import sys, urllib.request as r; r.urlopen(r.Request(sys.argv[1], sys.argv[2].encode(), method='PUT'))"
        url = f"http://{address}:8080/_control"
        done = self.lab.cluster.inside([sys.executable, "-c", code, url, json.dumps(faults)], stderr=subprocess.PIPE)
        said = done.communicate(timeout=60)[1]
        assert done.returncode == 0, said

    def body(self, name: str, verifier: str, speculator: str, **changes: Any) -> Json:
        """An object whose pods run the emulator."""
        spec = {
            "verifier": {"model": verifier, "servedName": name, "maxModelLen": 2048, "maxNumSeqs": 8},
            "speculator": {"method": "draft_model", "model": speculator},
            "speculation": {"mode": "Static", "numSpeculativeTokens": 3, "maxSpeculativeTokens": 3},
            "engine": {"version": "0.32.0", "image": ENGINE_IMAGE},
            "accelerator": {"product": "H100-SXM"},
            "weights": {"hubEndpoint": f"http://{self.host}"},
            **changes,
        }
        meta = {"name": name, "namespace": self.lab.namespace}
        return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "spec": spec}

    def ready(self, name: str) -> None:
        """Wait until an object serves."""
        self.wait(f"{name} is ready", lambda: self.lab.condition("Ready", name).get("status") == "True")

    @staticmethod
    def wait(what: str, condition: Callable[[], Any]) -> Any:
        """`until`, for what a machine does when it comes to it."""
        return until(what, condition, LONG)

    def status(self, name: str) -> Json:
        return dict((self.lab.get(names.PLURAL, name) or {}).get("status") or {})

    def serving(self, name: str) -> Json:
        """uid -> (template hash, arguments) of the serving pods that stay."""
        found = self.lab.listed("pods", f"{names.LABEL_DEPLOYMENT}={name}")
        return {
            pod["metadata"]["uid"]: (
                pod["metadata"]["labels"]["pod-template-hash"],
                " ".join(pod["spec"]["containers"][0]["args"]),
            )
            for pod in found
            if "deletionTimestamp" not in pod["metadata"]
        }

    def warned(self, name: str) -> list[str]:
        """Reasons of the warnings in status."""
        return [one["reason"] for one in self.status(name).get("warnings") or ()]

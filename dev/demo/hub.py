"""A hub in the cluster's network that serves the tiny models: a pod and a Service. Called by `pairs` and by tests."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from demo.scene import NAMESPACE, ROOT, service_url
from devcluster.cluster import Cluster
from devcluster.options import Image

MODELS = ROOT / "dev" / "data" / "models"
TARGET, DRAFT, HEAD = "target", "draft", "eagle3"
"""A verifier, a draft model and an EAGLE-3 head for it: folders of MODELS, served as `tiny/...`."""
NAME, PORT, IMAGE = "hub", 8080, "model-hub:dev"
URL = f"http://{NAME}.{NAMESPACE}.svc"
Json = dict[str, Any]


def images() -> dict[str, Image]:
    """The hub's image, a program of this tree."""
    program = (sys.executable, "-m", "modelservers.hub")
    return {IMAGE: Image(program, {"PYTHONPATH": str(ROOT / "dev")})}


def serve(cluster: Cluster, folder: Path, *more: str, models: Path = MODELS) -> None:
    """A hub with copies of `models` in `folder`, as a pod with a Service, ready. `more` arguments of it.

    The folder must not be below /tmp, which every pod has of its own.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for name in (TARGET, DRAFT, HEAD):
        shutil.copytree(models / name, folder / "tiny" / name)
    labels = {"app": NAME}
    arguments = ["--folder", str(folder), "--host", "0.0.0.0", "--port", str(PORT), *more]  # noqa: S104  the pod's
    container: Json = {"name": NAME, "image": IMAGE, "args": arguments}
    container["readinessProbe"] = {"httpGet": {"path": "/_control", "port": PORT}, "periodSeconds": 1}
    pod = {"kind": "Pod", "spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
    ports = [{"port": 80, "targetPort": PORT}]
    service = {"kind": "Service", "spec": {"selector": labels, "ports": ports}}
    meta = {"name": NAME, "namespace": NAMESPACE, "labels": labels}
    items = [{"apiVersion": "v1", "metadata": meta, **one} for one in (pod, service)]
    cluster.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=120s", "-n", NAMESPACE, f"pod/{NAME}")


def asked(cluster: Cluster) -> Json:
    """What the hub has sent so far."""
    answer = cluster.inside(
        [sys.executable, "-c", "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())",
         f"{service_url(cluster, NAME)}/_control"],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    told, _ = answer.communicate(timeout=60)
    return dict(json.loads(told))

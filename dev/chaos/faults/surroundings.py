"""Faults of what surrounds the pods: a full volume, others' files in it, a hostile neighbour, a stuck rollout."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

from chaos import lies
from chaos.faults.fault import Fault
from chaos.faults.servers import lying
from chaos.ground import AUTO, FIXED, STORE_MIB, Ground, cached, manifest
from demo import hub
from demo.scene import NAMESPACE, until
from speculative_operator.domain import names

NEWCOMER = "fault-newcomer"
LONG_AGO = 90 * 86400.0
"""seconds: longer than any version that a cache keeps unused."""
FETCH_SECONDS = 240.0
OWN_FOLDER = ".speculative-cache"
LIKELY = (
    "models/llama-70b/model.safetensors",
    "models/fedcba9876543210/model.safetensors",
    "partial/upload-of-team-b/part-1",
    "trash/keep-me/results.csv",
    "uses/0123456789abcdef/notes",
    "compiled/by-somebody/kernel.bin",
)
"""Where a cache has folders of its own, under names that others give."""
FILES = ("results/run-17.csv", "llama-70b/config.json", *LIKELY)


def _put(root: Path, name: str) -> None:
    """A file of somebody else, last touched long ago, as are its folders."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{name} belongs to somebody else\n")
    for one in (path, *(above for above in path.parents if above != root and above.is_relative_to(root))):
        os.utime(one, (time.time() - LONG_AGO,) * 2)


def _newcomer_ends(ground: Ground) -> bool:
    """Was its fetch carried out or refused?"""
    status, reason = ground.condition(NEWCOMER, "WeightsReady")
    return status == "True" or (status == "False" and reason not in ("Downloading", "Inspecting", "Unknown"))


class _OnTheVolume(Fault):
    """One of the volume that `cached` loads from: an object that shares it brings another speculator into it."""

    seconds = 3.0

    def inject(self, ground: Ground) -> None:
        ground.objects.apply(cached(NEWCOMER, hub.HEAD))
        until(f"the fetch of {NEWCOMER} ends", lambda: _newcomer_ends(ground), FETCH_SECONDS)

    def heal(self, ground: Ground) -> None:
        ground.remove(NEWCOMER)

    def clear(self, ground: Ground) -> None:
        for name in ground.foreign_files:
            (ground.store / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                (ground.store / name).parent.rmdir()
        ground.foreign_files.clear()


class ForeignFiles(_OnTheVolume):
    name = "others' files in the cache"
    does = (
        "The volume of the cache holds old files of others, at its root and in every folder that a cache has. Then"
        " another object fetches into it."
    )
    remedy = "They stay. If the cache refuses the volume, the condition names what lies in its way."

    def prepare(self, ground: Ground) -> None:
        own = [f"{OWN_FOLDER}/{name}" for name in LIKELY] if (ground.store / OWN_FOLDER).is_dir() else []
        for name in (*FILES, *own):
            _put(ground.store, name)
            ground.foreign_files.append(name)


class FullDisk(_OnTheVolume):
    name = "full disk"
    does = "A file of somebody else fills the volume of the cache; another object fetches into it."
    remedy = "`WeightsReady` has the bytes needed. Make room."
    filling = "results/measurements.bin"

    def prepare(self, ground: Ground) -> None:
        path = ground.store / self.filling
        path.parent.mkdir(exist_ok=True)
        with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
            for _ in range(STORE_MIB * 16):
                file.write(b"\x55" * 65536)
        ground.foreign_files.append(self.filling)


SPOOFER = """
import http.server, sys
series, pod = int(sys.argv[1]), sys.argv[2]
labels = 'model_name="auto",engine="0",namespace="models",pod="%s"' % pod
names = ["vllm:generation_tokens_total", "vllm:spec_decode_num_draft_tokens_total", "vllm:num_requests_running",
         "vllm:spec_decode_num_accepted_tokens_total", "speculative_payload_table_version"]
text = "".join("%s{%s,n=\\"%d\\"} %d\\n" % (names[i % len(names)], labels, i, i * 10**6) for i in range(series))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(text.encode())
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Handler).serve_forever()
"""
HOSTILE = "hostile"
SERIES = 10_000


class HostileNamespace(Fault):
    name = "hostile namespace"
    does = (
        f"A tenant runs a pod with our labels that exports {SERIES:,} series in the name of another tenant's pod, and"
        " objects that cannot be served. Series of that pod come from a strange address, too."
    )
    remedy = "Nothing: series of a strange address do not count."
    seconds = 30.0

    def prepare(self, ground: Ground) -> None:
        ground.cluster.kubectl("create", "namespace", HOSTILE, check=False)

    def inject(self, ground: Ground) -> None:
        victim = ground.pods(AUTO)[0]
        labels = {names.LABEL_DEPLOYMENT: AUTO, names.LABEL_MANAGED_BY: names.OPERATOR, "namespace": NAMESPACE}
        annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": "8000"}
        meta = {"name": "spoofer", "namespace": HOSTILE, "labels": labels, "annotations": annotations}
        container = {"name": "server", "image": "python", "args": ["-c", SPOOFER, str(SERIES), victim]}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
        ground.objects.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        for name, changes in _absurd_objects():
            body = manifest(name, **changes)
            body["metadata"]["namespace"] = HOSTILE
            ground.cluster.kubectl("apply", "-f", "-", input=json.dumps(body), check=False)
        ground.prometheus_proxy.behaviour = lying(lies.spoofed("10.88.250.250:8000"))

    def heal(self, ground: Ground) -> None:
        ground.prometheus_proxy.restore()
        ground.cluster.kubectl("delete", "namespace", HOSTILE, "--timeout=90s", check=False)


def _absurd_objects() -> list[tuple[str, dict[str, Any]]]:
    """Objects of the hostile tenant: some the API server refuses, some only the operator can."""
    deep: dict[str, Any] = {}
    for _ in range(50):
        deep = {"x": deep}
    pod = {"spec": {"containers": [{"name": "engine", "image": "nowhere.invalid/none:1"}]}}
    return [
        (AUTO, {"replicas": 0}),
        ("fault-deep", {"template": {"spec": deep}, "replicas": 0}),
        ("fault-everything", {"template": pod, "replicas": 0}),
        ("fault-engine", {"engine": {"type": "TGI"}}),
        ("fault-model", {"verifier": {"model": "hf://" + "a/" * 200 + "b"}}),
        ("fault-wide", {"engine": {"env": [{"name": f"E{n}", "value": "x" * 4000} for n in range(64)]}, "replicas": 0}),
    ]


class StalledRollout(Fault):
    name = "stalled rollout"
    does = "An edit asks for pods on a node that does not exist; then it is undone."
    remedy = "The conditions say what the new pod waits for. The old pods serve; undo the edit."
    seconds = 15.0

    def inject(self, ground: Ground) -> None:
        before = set(ground.pods(FIXED))
        ground.edit(FIXED, {"template": {"spec": {"nodeSelector": {"example.com/none": "yes"}}}})
        until("a new pod waits", lambda: set(ground.pods(FIXED)) - before, 180.0)

    def heal(self, ground: Ground) -> None:
        ground.edit(FIXED, {"template": None})

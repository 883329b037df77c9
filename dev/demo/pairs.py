"""The demo's part on pairs: real models, tiny ones, on their way from a hub in the cluster's network to a pod.

Inspected, pinned, fetched into a claim, mounted read-only; then the speculator is changed under load, and a speculator
of another verifier is refused. Called by `run` after the engines; run alone by `python -m demo.pairs`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from demo import hub
from demo.hub import DRAFT, HEAD, TARGET, Json
from demo.scene import (
    NAMESPACE,
    ROOT,
    SceneError,
    condition,
    install_operator,
    is_ready,
    options,
    pods_of,
    service_url,
    until,
)
from demo.sender import Sender, evenly, models
from devcluster.cluster import Cluster
from speculative_operator.cli import terminal
from speculative_operator.domain import names
from speculative_operator.domain.names import CACHE_FOLDER

NAME, MISFIT = "tiny", "tiny-misfit"
RATE, LONGEST_SECONDS, SETTLE_SECONDS = 5.0, 250.0, 2.0
"""Requests per second, how long at most, and how long before and after the change."""
SPECULATORS = {
    DRAFT: {"method": "draft_model", "model": f"hf://tiny/{DRAFT}"},
    HEAD: {"method": "eagle3", "model": f"hf://tiny/{HEAD}"},
}
Say = Callable[[str], None]


@dataclass(slots=True)
class Seen:
    """What became of the pair, and of the one that does not fit. Seconds from when it was applied, bytes."""

    inspected: float = 0.0
    fetched: float = 0.0
    ready: float = 0.0
    bytes: int = 0
    pins: dict[str, str] = field(default_factory=dict)
    loaded: list[str] = field(default_factory=list)
    """Folders of the claim, which the pod mounts read-only, that its engine is told to load."""
    rolled: float = 0.0
    requests: int = 0
    failed: int = 0
    failures: list[str] = field(default_factory=list)
    verifier_fetched: float = 0.0
    """How often the hub sent the verifier's weights, by bytes."""
    refused: Json = field(default_factory=dict)
    """Condition PairCompatible of the pair that does not fit."""
    pods_of_refused: int = 0
    findings: list[dict[str, str]] = field(default_factory=list)
    """What `speculative check` finds in it."""

    def checks(self) -> dict[str, bool]:
        """What the demo holds this part to."""
        return {
            "a pair arrives pinned and is mounted read-only": len(self.pins) == 2 and len(self.loaded) == 2,
            "another speculator rolls in without a failed request": self.rolled > 0 < self.requests and not self.failed,
            "a verifier that is there is not fetched again": 0.9 < self.verifier_fetched < 1.1,
            "a speculator of another verifier is refused before a pod exists": self.refused.get("status") == "False"
            and self.pods_of_refused == 0
            and bool(self.findings),
        }

    def summary(self) -> Json:
        """For the demo's last line."""
        return {
            "inspected_seconds": round(self.inspected, 1),
            "fetched_seconds": round(self.fetched, 1),
            "ready_seconds": round(self.ready, 1),
            "bytes": self.bytes,
            "roll_seconds": round(self.rolled, 1),
            "requests": {"total": self.requests, "failed": self.failed},
            "verifier_fetched": round(self.verifier_fetched, 2),
            "refused": {
                "reason": self.refused.get("reason"),
                "pods": self.pods_of_refused,
                "findings": [one["code"] for one in self.findings],
            },
        }


def play(cluster: Cluster, out: Path, say: Say) -> Seen:
    """All of it; plans and records go into `out`."""
    hub.serve(cluster, ROOT / "build" / "hub")
    return roundtrip(cluster, out, say)


def roundtrip(cluster: Cluster, out: Path, say: Say) -> Seen:
    """All of it but for the hub, which serves."""
    seen = Seen()
    say("kubectl apply: tiny models from a hub in the cluster's network, by way of a claim")
    _arrive(cluster, seen)
    pins = ", ".join(f"{side} {pin[:8]}" for side, pin in seen.pins.items())
    say(f"inspected in {seen.inspected:.1f} s, pinned: {pins}")
    say(f"{seen.bytes / 1e6:.1f} MB in the claim after {seen.fetched:.1f} s, ready after {seen.ready:.1f} s")
    say("kubectl patch: another speculator for the same verifier, under load; and one that was made for another")
    _apply(cluster, MISFIT, f"hf://tiny/{DRAFT}", HEAD)
    _roll(cluster, out, seen)
    say(f"rolled in {seen.rolled:.1f} s: {seen.requests} requests, {seen.failed} failed; the verifier was fetched "
        f"{seen.verifier_fetched:.0f} time")  # fmt: skip
    _refuse(cluster, seen)
    seen.findings = _checked(cluster, out)
    say(f"{MISFIT}: {seen.refused.get('reason')}, {seen.pods_of_refused} pods; speculative check of the same pair:")
    return seen


# -- the pair


def manifest(name: str, verifier: str, speculator: str) -> Json:
    """An object whose weights come through the hub into a claim."""
    spec = {
        "verifier": {"model": verifier, "servedName": name, "maxModelLen": 2048, "maxNumSeqs": 8},
        "speculator": SPECULATORS[speculator],
        "speculation": {"mode": "Static", "numSpeculativeTokens": 3, "maxSpeculativeTokens": 3},
        "engine": {"version": "0.32.0", "image": "speculative-operator/vllm-emulator:0.32.0"},
        "accelerator": {"product": "H100-SXM"},
        "rollout": {"strategy": "RollingUpdate"},
        "weights": {
            "hubEndpoint": hub.URL,
            "cache": {"size": "1Gi", "accessMode": "ReadWriteOnce"},
        },
    }
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "spec": spec}


def _apply(cluster: Cluster, name: str, verifier: str, speculator: str) -> None:
    cluster.kubectl("apply", "-f", "-", input=json.dumps(manifest(name, verifier, speculator)))


def _object(cluster: Cluster, name: str) -> Json:
    return cluster.objects.get("specdep", name, NAMESPACE)


def _arrive(cluster: Cluster, seen: Seen) -> None:
    started = time.monotonic()
    _apply(cluster, NAME, f"hf://tiny/{TARGET}", DRAFT)

    def look() -> Json | None:
        found = _object(cluster, NAME)
        status = found.get("status") or {}
        pair, now = status.get("pair") or {}, time.monotonic() - started
        if pair.get("verdict") and not seen.inspected:
            seen.inspected = now
        if pair.get("cache") and not seen.fetched:
            seen.fetched = now
        return status if is_ready(found) else None

    try:
        status = until(f"{NAME} is ready", look, LONGEST_SECONDS)
    except SceneError as error:
        raise SceneError(
            f"{error}; {json.dumps((_object(cluster, NAME).get('status') or {}).get('conditions'))}"
        ) from None
    seen.ready = time.monotonic() - started
    pair = status["pair"]
    seen.pins = {side: pair[f"{side}Pin"]["resolved"] for side in ("verifier", "speculator")}
    seen.bytes = int((status.get("weights") or {}).get("bytes") or 0)
    keys = [pair[f"{side}Pin"]["key"] for side in ("verifier", "speculator")]
    seen.loaded = [key for key in keys if _loads(pods_of(cluster, NAME)[0], key)]


def _loads(pod: Mapping[str, Any], key: str) -> bool:
    """True when the engine's arguments name a folder of the cache, and the claim can only be read."""
    claims = {one["name"] for one in pod["spec"]["volumes"] if "persistentVolumeClaim" in one}
    (engine,) = pod["spec"]["containers"]
    mounts = [one for one in engine["volumeMounts"] if one["name"] in claims]
    paths = [f"{one['mountPath']}/{CACHE_FOLDER}/models/{key}" for one in mounts if one.get("readOnly")]
    return any(path in argument for path in paths for argument in engine["args"])


# -- the roll, and what is refused


def _roll(cluster: Cluster, out: Path, seen: Seen) -> None:
    """Change the speculator while requests come, until every pod is of the new pair."""
    (before,) = pods_of(cluster, NAME)
    arrivals = evenly(LONGEST_SECONDS, RATE, prompt=60, output=40)
    with Sender(cluster, out / "pairs-requests.jsonl", models(NAME), arrivals) as sender:
        time.sleep(SETTLE_SECONDS)
        started = time.monotonic()
        cluster.objects.merge("specdep", NAME, NAMESPACE, {"spec": {"speculator": SPECULATORS[HEAD]}})

        def rolled() -> bool:
            pods = pods_of(cluster, NAME)
            other = all(pod["metadata"]["uid"] != before["metadata"]["uid"] for pod in pods)
            return bool(pods) and other and is_ready(pods[0])

        until(f"{NAME} is rolled", rolled, LONGEST_SECONDS - 10)
        seen.rolled = time.monotonic() - started
        time.sleep(SETTLE_SECONDS)
        answered = sender.finish(LONGEST_SECONDS)
    seen.requests = len(answered)
    seen.failures = [f"{one['at']:.1f} s: {one.get('error') or one.get('status')}" for one in answered if one["failed"]]
    seen.failed = len(seen.failures)
    sent = hub.asked(cluster)["bytesByPath"]
    weights = hub.MODELS / TARGET / "model.safetensors"
    through = sum(count for path, count in sent.items() if TARGET in path and path.endswith(weights.name))
    seen.verifier_fetched = through / weights.stat().st_size


def _refuse(cluster: Cluster, seen: Seen) -> None:
    def refused() -> Json:
        found = condition(_object(cluster, MISFIT), "PairCompatible")
        return found if found.get("status") == "False" else {}

    seen.refused = until(f"{MISFIT} is refused", refused, LONGEST_SECONDS)
    seen.pods_of_refused = len(pods_of(cluster, MISFIT))


def _checked(cluster: Cluster, out: Path) -> list[dict[str, str]]:
    """The findings that a user gets of the pair before it is applied."""
    spec = out / f"{MISFIT}.json"
    spec.write_text(json.dumps(manifest(MISFIT, f"hf://tiny/{DRAFT}", HEAD)))
    command = [str(Path(sys.executable).parent / "speculative"), "check", str(spec), "-o", "json"]
    check = cluster.inside(command, env={"HF_ENDPOINT": service_url(cluster, hub.NAME)}, stdout=subprocess.PIPE)
    told, _ = check.communicate(timeout=LONGEST_SECONDS)
    return list(json.loads(told).get("findings") or ())


def main() -> int:
    """This part alone, on a cluster of its own."""
    out = ROOT / "build" / "demo"
    out.mkdir(parents=True, exist_ok=True)
    with Cluster.start(options("pairs", hub.images())) as cluster:
        install_operator(cluster, check_pairs=True)
        cluster.kubectl("create", "namespace", NAMESPACE)
        started = time.monotonic()
        seen = play(cluster, out, lambda text: print(f"{time.monotonic() - started:5.1f} s  {text}", flush=True))
    Console().print(terminal.findings_table(seen.findings))
    print(json.dumps(seen.summary()))
    print(json.dumps(seen.checks(), indent=2))
    return 0 if all(seen.checks().values()) else 1


if __name__ == "__main__":
    sys.exit(main())

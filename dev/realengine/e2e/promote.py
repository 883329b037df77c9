"""What docs/training.md says to do with a result, on the real engine: the trained head is a canary beside an untrained
one and is promoted, and its K is tuned meanwhile; then the untrained one is a canary beside it and is taken back.
Requests pass the stand-in for a Gateway all the while, and none may fail.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from demo.scene import OPERATOR, OPERATOR_NAMESPACE
from realengine import paths, scene
from realengine.e2e.hands import Hands, Json

ROUTE_KIND = paths.ROOT / "tests" / "fixtures" / "gateway" / "httproutes.json.gz"
ANALYSIS = {"steps": [50], "stepSeconds": 60, "deadlineSeconds": 900, "ttftWorseByPercent": 200}
CANARY_SECONDS, TUNED_SECONDS = 1000.0, 300.0
PORT = 18080
WORKERS = 3


def play(hands: Hands, deployment: Callable[[str], Json], trained: str, untrained: str, out: Path) -> Json:
    """All three; `deployment` makes an object of one of the two names. Raises SceneError where one does not end."""
    kind = json.loads(gzip.decompress(ROUTE_KIND.read_bytes()))
    hands.cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(kind))
    hands.cluster.wait_for_kinds()
    hands.cluster.kubectl("rollout", "restart", OPERATOR, "-n", OPERATOR_NAMESPACE)
    found: Json = {}
    for stable, canary, what in ((untrained, trained, "promoted"), (trained, untrained, "taken_back")):
        hands.apply(_routed(deployment(stable)), deployment(canary))
        for name in (stable, canary):
            hands.ready(name)
        hands.until("the route is there", 60, partial(hands.get, "httproute", stable))
        with requests(hands, stable, out / f"{what}.enough") as finish:
            hands.apply(_routed(deployment(stable), canary))
            found[what] = _verdict(hands, stable)
            found.setdefault("accepted", {name: hands.accepted(name) for name in (stable, canary)})
            if what == "promoted":
                found["tuned"] = _tuned(hands, trained)
            found[f"{what}_requests"] = finish()
        hands.delete(stable)
    return found


def is_well(found: Json) -> bool:
    """Whether each ended as it must, and no request failed."""
    asked = [found[f"{what}_requests"] for what in ("promoted", "taken_back")]
    ends = (found["promoted"]["phase"], found["taken_back"]["phase"])
    return ends == ("Promoted", "TakenBack") and bool(found["tuned"]) and not any(one["failed"] for one in asked)


def _routed(deployment: Json, canary: str = "") -> Json:
    route: Json = {"gateway": {"name": "public"}}
    if canary:
        route["canary"] = {"name": canary, "analysis": ANALYSIS}
    return {**deployment, "spec": {**deployment["spec"], "route": route}}


def _verdict(hands: Hands, stable: str) -> Json:
    """What the analysis says at its end, and after how many seconds."""
    began = time.monotonic()

    def ended() -> Json:
        told: Json = (hands.get("specdep", stable)["status"].get("canary")) or {}
        return told if told.get("phase") in ("Promoted", "TakenBack") else {}

    told = dict(hands.until(f"the canary of {stable} is judged", CANARY_SECONDS, ended))
    told["seconds"] = round(time.monotonic() - began)
    hands.report(f"canary of {stable}: {told}")
    return told


def _tuned(hands: Hands, name: str) -> Json:
    """Wait until the operator has changed the table of an object, and K rests."""

    def decided() -> Json:
        status: Json = hands.get("specdep", name)["status"]
        speculation: Json = status.get("speculation") or {}
        return speculation if speculation.get("reason") == "Tuned" and status.get("decisions") else {}

    found = hands.until(f"K of {name} is tuned", TUNED_SECONDS, decided)
    wanted = ("state", "k", "tableText", "acceptanceLength", "gain", "gainBasis", "gainRange", "message")
    told = {field: found.get(field) for field in wanted} | {"atSeconds": hands.seconds}
    hands.report(f"K of {name}: {told}")
    return told


@contextmanager
def requests(hands: Hands, route: str, enough: Path) -> Iterator[Callable[[], Json]]:
    """Prompts that were held out, through the route. What it gives ends them and tells how many there were and how many
    failed."""
    cluster, folders = hands.cluster, ":".join(str(paths.ROOT / one) for one in ("dev", "operator"))
    argv = [sys.executable, "-m", "demo.gateway", "--namespace", scene.NAMESPACE, "--route", route, "--port", str(PORT)]
    gateway = cluster.inside(argv, env={"PYTHONPATH": folders})
    address = f"http://127.0.0.1:{PORT}"
    probe = [sys.executable, "-c", f"import urllib.request as r; r.urlopen('{address}/v1/models')"]
    enough.unlink(missing_ok=True)
    asking: subprocess.Popen[Any] | None = None
    try:
        hands.until("requests pass", 120, lambda: cluster.inside(probe, stderr=subprocess.DEVNULL).wait(30) == 0)
        argv = [sys.executable, "-m", "realengine.prompts", address, str(enough), str(WORKERS)]
        asking = cluster.inside(argv, env={"PYTHONPATH": folders}, stdout=subprocess.PIPE)

        def finish() -> Json:
            assert asking is not None
            enough.touch()
            return dict(json.loads(asking.communicate(timeout=150)[0]))

        yield finish
    finally:
        for process in (asking, gateway):
            if process is not None and process.poll() is None:
                process.terminate()
                process.wait(10)

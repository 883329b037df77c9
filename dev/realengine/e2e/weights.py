"""Both models come from the hub into the cache once, and engines load them from there: each new pod, and a pod anew.

What the engine loads is told by its own log; what was downloaded by the hub, which counts the bytes of every file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from demo import hub
from realengine.e2e.steps import NAME, Play, ready
from realengine.scene import DRAFTERS
from speculative_operator.domain.names import CACHE_FOLDER
from speculative_operator.reconcile.pair.pinning import FOLDER

SIDES = ("verifier", "speculator")
WEIGHTS = "model.safetensors"
PEEK, PEEKS = 1 << 16, 5
"""Bytes of a file that an inspecting Job reads for its header, and how many pairs of a run are inspected."""
_VERIFIER = re.compile(r"Initializing a V1 LLM engine .*? with config: model='([^']+)'")
_SPECULATOR = re.compile(r"SpeculativeConfig\(method='\w+', model='([^']+)'")
Sent = Mapping[str, int]
"""Path at the hub -> bytes."""


def folders(pod: Mapping[str, Any], pair: Mapping[str, Any]) -> dict[str, str]:
    """Side -> where its version lies below a claim that the engine can only read; of the sides that are pinned."""
    (engine,) = pod["spec"]["containers"]
    claims = {one["name"] for one in pod["spec"]["volumes"] if "persistentVolumeClaim" in one}
    mounts = [one["mountPath"] for one in engine["volumeMounts"] if one["name"] in claims and one.get("readOnly")]
    pins = {side: pair.get(f"{side}Pin") for side in SIDES}
    return {
        side: f"{mounts[0]}/{CACHE_FOLDER}/{FOLDER}/{pin['key']}"
        for side, pin in pins.items()
        if pin and len(mounts) == 1
    }


def told(pod: Mapping[str, Any]) -> dict[str, str]:
    """Side -> what the engine's arguments name for it."""
    arguments = pod["spec"]["containers"][0]["args"]
    found = {"verifier": arguments[0]}
    if "--speculative-config" in arguments:
        config = json.loads(arguments[arguments.index("--speculative-config") + 1])
        found |= {"speculator": config["model"]} if "model" in config else {}
    return found


def loaded(log: str, drafter: bool) -> dict[str, str]:
    """Side -> what the engine says in its log that it loads. Without a drafter it names the verifier twice."""
    sides = {"verifier": _VERIFIER} | ({"speculator": _SPECULATOR} if drafter else {})
    return {side: found[1] for side, pattern in sides.items() if (found := pattern.search(log))}


async def check(play: Play, method: str, what: str) -> None:
    """Hold the serving pod to load all of its pair from the cache. `method` is empty for pods without a drafter."""
    pod, drafter = await play.stage.pod(NAME), method in DRAFTERS
    pair = (await play.stage.get(NAME))["status"].get("pair") or {}
    wanted = folders(pod, pair)
    names = SIDES if drafter else SIDES[:1]
    play.models |= {hub.TARGET, *([DRAFTERS[method]] if drafter else [])}
    log = await play.stage.log(pod["metadata"]["name"])
    expected = {side: wanted.get(side) for side in names}
    good = all(expected.values()) and told(pod) == expected and loaded(log, drafter) == expected
    play.report.check(
        f"{what}: the engine loads {' and '.join(names)} from the cache",
        good,
        ", ".join(f"{side} {path}" for side, path in loaded(log, drafter).items())
        + ("" if good else f"; not {expected}"),
    )


async def anew(play: Play) -> None:
    """End a pod: the next one loads the same folders, and the hub is asked for nothing."""
    old, before = await play.stage.pod(NAME), sum((await play.stage.sent()).values())
    await play.stage.end(old["metadata"]["name"])
    await ready(play.stage, 1, without=old["metadata"]["uid"])
    new, after = await play.stage.pod(NAME), sum((await play.stage.sent()).values())
    play.report.check(
        "a pod that is started anew downloads nothing",
        before == after and told(new) == told(old) and new["metadata"]["uid"] != old["metadata"]["uid"],
        f"{after - before} bytes from the hub, {before} before",
    )


async def once(play: Play) -> None:
    """Whatever was changed: the hub has sent each model's weights once."""
    sent = await play.stage.sent()
    sizes, counts = {}, {}
    for model in sorted(play.models):
        sizes[model] = (await play.stage.files(f"tiny/{model}"))[WEIGHTS]
        counts[model] = sum(
            bytes_ for path, bytes_ in sent.items() if f"tiny/{model}/" in path and path.endswith(WEIGHTS)
        )
    play.report.check(
        "the hub has sent the weights of each model once",
        bool(sizes) and all(0 <= counts[model] - size <= PEEKS * PEEK for model, size in sizes.items()),
        ", ".join(f"{model} {size} bytes and {counts[model] - size} for headers" for model, size in sizes.items()),
    )

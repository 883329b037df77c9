"""The Jobs of `speculative bench`: made one at a time, waited for, and read. Used by `bench` alone."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from speculative_operator.cli.cluster import Cluster, Object, plain
from speculative_operator.cli.commands import CommandError
from speculative_operator.comparing.ladder import Step, measured
from speculative_operator.domain import names
from speculative_operator.domain.jobs import Phase
from speculative_operator.render.load_job import IMAGE, MARK, Load, load_job
from speculative_operator.shell.bodies import end_of
from speculative_operator.shell.jobs import phase_of, trouble_of

LOOK_SECONDS = 2.0
PATIENCE_SECONDS = 60.0
"""For which a trouble may last before the bench gives up: a node may come, a registry answer again."""
_REMEDIES = {
    "Pull": "name an image that the nodes can pull: --image",
    "quota": "a Job asks for 1 CPU and 2 GiB, at most 4 and 4: have the quota raised",
    "chedul": "make room for 1 CPU and 2 GiB on a node without accelerators",
    "401": "name the Secret with the engine's API key: --api-key-secret NAME:KEY",
    "DeadlineExceeded": "its pod came too late or hangs: kubectl describe it",
}
"""A word of a trouble -> what to do about it; nothing is decided by it."""


@contextmanager
def prompts(at: Cluster, name: str, given: Object) -> Iterator[None]:
    """Has a ConfigMap of prompts for the block. Results of the bench before are deleted first. Raises CommandError
    where a bench runs."""
    label = _label(name)
    if any(end_of(dict(one)) is None for one in at.jobs(label)):
        remedy = f"wait for its end, or kubectl delete jobs -n {at.namespace} -l {label}"
        raise CommandError(f"a bench of {name} runs already", remedy)
    for kind in ("Job", "ConfigMap"):
        at.delete_labelled(kind, label)
    try:
        at.create(given)
        yield
    finally:
        at.delete_labelled("ConfigMap", label)


def send(at: Cluster, load: Load, step: Step, number: int, node: str) -> tuple[Step, Object]:
    """Have one Job send its requests: what was measured, and the Job's pod. However the command ends, a Job that runs
    is deleted before anything else; one that ended stays with its result and its log. Raises CommandError."""
    job: Object = load_job(load, f"{step.rate:g}", number, node, pulls=not step.repeat)
    name, since, made = str(job["metadata"]["name"]), time.monotonic(), False
    try:
        at.create(job)
        made = True
        while True:
            time.sleep(LOOK_SECONDS)
            job = next((one for one in at.jobs(_label(load.spec.name)) if one["metadata"]["name"] == name), {})
            if not job:
                raise CommandError(f"Job {name} was deleted")
            pods = at.pods_of_job(name)
            phase = phase_of(dict(job), pods, time.time())
            if phase is Phase.SUCCEEDED and pods:
                return _read(at.log(pods[0]), step, name), pods[0]
            trouble = trouble_of(dict(job), pods, phase, time.time())
            if not trouble:
                since = time.monotonic()
            elif phase is not Phase.RUNNING or time.monotonic() - since > PATIENCE_SECONDS:
                raise _failure(at, name, trouble, pods[0] if phase is Phase.FAILED and pods else None)
    finally:
        if job and end_of(dict(job)) is None:
            at.delete_job(name)  # also where its creation was not answered: there may be one
            if made:
                print(f"Job {name} is told to stop", file=sys.stderr)


def _failure(at: Cluster, name: str, trouble: str, ended: Object | None) -> CommandError:
    """Why a Job has no result, by the last words of its pod that has ended or by the Job's events, with a remedy."""
    lines = at.log(ended).split("\n") if ended is not None else at.warnings(name)
    told = plain("; ".join((trouble, *[one.strip() for one in lines if one.strip()][-1:])))
    remedy = next((one for word, one in _REMEDIES.items() if word in told), "look at the log of its pod")
    return CommandError(f"Job {name}: {told}", remedy)


def _read(log: str, step: Step, name: str) -> Step:
    try:
        return measured(step, log.partition(f"\n{MARK}\n")[2])
    except ValueError as problem:
        remedy = f"use the image {IMAGE}, or another of that release"
        raise CommandError(f"the log of Job {name} has no result: {problem}", remedy) from None


def keep(at: Cluster, pod: Object, step: Step) -> None:
    """Note a step at its Job."""
    job = pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]
    at.annotate_job(job, names.ANNOTATION_BENCH, json.dumps(asdict(step)))


def noted_steps(at: Cluster, name: str) -> Iterator[Step]:
    """Yield the steps of an object's last bench that are noted."""
    for job in at.jobs(_label(name)):
        try:
            step = Step(**json.loads((job["metadata"].get("annotations") or {})[names.ANNOTATION_BENCH]))
        except (KeyError, ValueError, TypeError):
            continue
        if isinstance(step.values, dict):
            yield step


def _label(name: str) -> str:
    return f"{names.LABEL_BENCH}={name}"

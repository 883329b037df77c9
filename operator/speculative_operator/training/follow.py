"""What a training does next: which Job is to be made, and what its status says. Called by `shell.trainings`.

    look (a Job without accelerators) -> train (a Job with them) -> Done or Failed

All that is known lies in the status and the two Jobs, so an operator that was away goes on where things are. An ended
training stays as it is: its Jobs go by their own time, its output is the user's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from speculative_operator.domain.actions import Condition, Truth
from speculative_operator.domain.formats import LONGEST_MESSAGE, duration, money, number, size, timestamp
from speculative_operator.domain.jobs import Phase
from speculative_operator.domain.models import NAMES, file_of_data_set
from speculative_operator.domain.reading import conditions_of, items, mapping, seconds_of, text, whole
from speculative_operator.domain.reasons import ConditionType, Reason, reason_of
from speculative_operator.domain.training import Stage, Training
from speculative_operator.pairing.reading import decoder, first_whole
from speculative_operator.physics.catalog import find_accelerator
from speculative_operator.training.jobs import LEAST_LAYERS, LOOK, TRAINS, Known, Means, job_name, look_job, train_job
from speculative_operator.training.progress import Progress
from speculative_operator.training.seen import JobSeen, Seen

LOST = frozenset(
    {"NodeLost", "Evicted", "DeletionByTaintManager", "DeletionByPodGC", "PreemptionByScheduler",
     "EvictionByEvictionAPI", "TerminationByKubelet"}
)  # fmt: skip
"""Reasons by which Kubernetes says that a pod was taken away, not that it failed."""
OF_CONTAINER = {"answers": Stage.ANSWERING, "train": Stage.TRAINING, "check": Stage.CHECKING, "copy": Stage.CHECKING}
"""Container that does the work -> stage."""
MOST_K = 64
"""Largest K of which an expected acceptance length is kept."""
_LARGEST_STEP, _LARGEST_LAYER = 2**31 - 1, 10_000
_OF_STAGE = ("step", "steps", "progress", "timeLeft", "stageSince", "stageStep")
"""Fields of status that speak of the stage that runs."""
_LOOKS = Reason.PREPARING, "a Job without accelerators looks at prompts, verifier, output and disk"
_STAGES = {
    Stage.PREPARING: (Reason.PREPARING, "the verifier is loaded and the prompts are prepared"),
    Stage.ANSWERING: (Reason.ANSWERING, "the verifier answers the prompts"),
    Stage.TRAINING: (Reason.TRAINING, "the speculator learns from the verifier's hidden states"),
    Stage.CHECKING: (Reason.CHECKING, "the speculator is compared with its verifier"),
}


@dataclass(frozen=True, slots=True)
class Step:
    """The outcome of one look."""

    status: dict[str, Any]
    """The whole status as it should be."""
    job: Mapping[str, Any] | None = None
    """The Job to make, which must not exist yet."""


def has_ended(status: Mapping[str, Any]) -> bool:
    """True where the status says that the training is over."""
    return text(status, "stage") in (Stage.DONE, Stage.FAILED)


def refused(status: Mapping[str, Any], generation: int, reason: Reason, why: str, now: float) -> Step:
    """A training that cannot begin, or go on, as it or the operator is configured; it is looked at again."""
    told = with_condition(status, Condition(ConditionType.TRAINED, Truth.FALSE, reason, why), generation, now)
    return Step({**told, "observedGeneration": generation})


def follow(seen: Seen, means: Means, now: float) -> Step:
    """The next step of a training; `now` in unix seconds. Raises RenderError."""
    if has_ended(seen.status):
        return Step(dict(seen.status))
    for kind, job in ((LOOK, seen.look), (TRAINS, seen.train)):
        if job is not None and not job.owned:
            why = f"Job {job_name(seen.training.name, kind)} is not this object's: delete it, or use another name"
            return _say(seen, Truth.FALSE, Reason.NAME_CONFLICT, why, now)
    if seen.train is not None:
        return _trains(seen, seen.train, now)
    begun = seconds_of(text(seen.status, "jobStartedAt"))
    if begun is not None and whole(seen.status, "verifierLayers"):
        return _again(seen, begun, means, now)
    if seen.look is None:
        return _say(seen, Truth.UNKNOWN, *_LOOKS, now, look_job(seen.training, means))
    return _looked(seen, seen.look, means, now)


def _looked(seen: Seen, job: JobSeen, means: Means, now: float) -> Step:
    if job.phase is Phase.RUNNING:
        told = (Reason.TRAINING_WAITS, job.trouble) if job.trouble else _LOOKS
        return _say(seen, Truth.UNKNOWN, *told, now)
    if job.phase is Phase.FAILED:
        return _tell_failure(seen, job, now)
    if not {"inspect", *(("prompts",) if file_of_data_set(seen.training.prompts) else ())} <= job.results.keys():
        gone = job_name(seen.training.name, LOOK)
        why = f"what Job {gone} found went with its pod: delete the Job to look again, or wait a day until it goes"
        return _say(seen, Truth.UNKNOWN, Reason.TRAINING_WAITS, why, now)
    return _begin(seen, job.results, means, now)


def _begin(seen: Seen, results: Mapping[str, Mapping[str, Any]], means: Means, now: float) -> Step:
    """The Job with accelerators, or why there is none; `results`: of the Job that looked."""
    facts = results["inspect"]
    layers = first_whole(decoder(mapping(facts, "verifier", "config")), NAMES["layers"])
    if layers is None or not LEAST_LAYERS <= layers <= _LARGEST_LAYER:
        why = f"config.json of {seen.training.verifier.uri} names no layers, or fewer than {LEAST_LAYERS}"
        return _end(seen, Reason.UNKNOWN_VERIFIER, f"{why}: a speculator reads three of them", now)
    if why := _too_large(seen.training, whole(facts, "verifier", "weights", "bytes")):
        return _end(seen, Reason.MEMORY_SHORT, why, now)
    marked, version = (text(one, "verifier", "pin", "resolved") for one in (facts, results.get("fetch", facts)))
    if version != marked:
        why = f"output is marked for version {marked} of the verifier, and another was fetched"
        remedy = f"set verifier.revision to {marked}, or name another folder in output"
        return _end(seen, Reason.OUTPUT_FOREIGN, f"{why}: {remedy}", now)
    found = {
        "verifierVersion": version[:256], "verifierLayers": layers,
        "dataVersion": text(results.get("prompts"), "prompts", "pin", "resolved")[:256] or None,
        "samples": max(0, whole(results.get("look"), "rows")),
    }  # fmt: skip
    held, seen = seen.status, replace(seen, status={**seen.status, **found})
    if any(held.get(name) != value for name, value in found.items()):
        # Stored before a Job is made of them: nothing else has them once the Job that looked is gone.
        return _say(seen, Truth.UNKNOWN, Reason.PREPARING, "verifier, prompts, output and disk are good", now)
    return _train(seen, Reason.PREPARING, "the Job with accelerators begins", 3600 * seen.training.hours, means, now)


def _too_large(training: Training, weights: int) -> str:
    """Why the verifier cannot be in the memory of the accelerators that serve it; empty where it can, or where that is
    not known. `weights` in bytes."""
    accelerator = find_accelerator(training.product) if training.product and training.accelerators else None
    if accelerator is None or weights <= (room := training.serving * accelerator.memory_bytes):
        return ""
    return (
        f"the verifier has {size(weights)} of weights, and {training.serving} x {accelerator.name} have {size(room)}: "
        "raise verifier.tensorParallelSize, and budget.accelerators with it"
    )


def _train(seen: Seen, reason: Reason, why: str, seconds: int, means: Means, now: float) -> Step:
    """The step that makes the Job with accelerators, of what status has of the verifier."""
    layers = max(LEAST_LAYERS, whole(seen.status, "verifierLayers"))
    known = Known(text(seen.status, "verifierVersion"), layers, text(seen.status, "dataVersion"))
    return _say(seen, Truth.UNKNOWN, reason, why, now, train_job(seen.training, known, seconds, means))


def _trains(seen: Seen, job: JobSeen, now: float) -> Step:
    status = dict(seen.status)
    if job.started is not None:
        status.setdefault("jobStartedAt", timestamp(job.started))
    if job.pod_started is not None:
        status.setdefault("runningSince", timestamp(job.pod_started))
    status |= _cost(seen.training, status, job.ended or now)
    known = {stage.value: stage for stage in _STAGES}
    # Between two containers, and while the server of hidden states starts, none does the work.
    stage = OF_CONTAINER.get(job.running) or known.get(text(status, "stage"), Stage.PREPARING)
    if seen.progress is not None:
        status |= _figures(status, stage, seen.progress, now)
    seen = replace(seen, status=status)
    if job.phase is Phase.RUNNING:
        return _under_way(seen, job, stage, now)
    return _tell_result(seen, job, now) if job.phase is Phase.SUCCEEDED else _tell_failure(seen, job, now)


def _again(seen: Seen, begun: float, means: Means, now: float) -> Step:
    """Somebody deleted the Job: it is made anew for the rest of the budget, and goes on from its last checkpoint."""
    left = min(int(begun - now), 0) + 3600 * seen.training.hours
    if left < 60:
        unknown = f"the Job is gone, so its end is not known: if it was done, {seen.training.result} is there"
        return _end(seen, Reason.DEADLINE_EXCEEDED, f"{unknown}. {_over(seen.training)}", now)
    why = f"the Job was gone; another goes on from the last checkpoint, for {duration(left)} at most"
    return _train(seen, Reason.TRAINING_RESUMED, why, left, means, now)


def _under_way(seen: Seen, job: JobSeen, stage: Stage, now: float) -> Step:
    reason, why = (Reason.TRAINING_WAITS, job.trouble) if job.trouble else _STAGES[stage]
    told = {**seen.status, "stage": stage.value}
    if stage != text(seen.status, "stage") and seen.progress is None:
        told |= dict.fromkeys(_OF_STAGE)
    return _say(replace(seen, status=told), Truth.UNKNOWN, reason, why, now)


def _tell_result(seen: Seen, job: JobSeen, now: float) -> Step:
    facts, training = job.results.get("check", {}), seen.training
    by_k = items(facts, "acceptanceLengths")[:MOST_K]
    lengths = [number(one, 2) for one in by_k] if all(map(is_length, by_k)) else []
    length = lengths[-1] if lengths else text(seen.status, "expectedAcceptance")
    expected = f"; held-out prompts let expect {length} tokens per step" if length else ""
    why = f"{training.result} has the {training.method} speculator{expected}"
    status = {
        **seen.status, **dict.fromkeys(_OF_STAGE), "stage": Stage.DONE.value, "speculator": training.result,
        "expectedAcceptance": length or None, "dataDigest": text(facts, "dataDigest")[:256] or None,
        "expectedAcceptanceByK": lengths, "endedAt": timestamp(job.ended or now),
        "tryWith": _try_with(training) or None,
    }  # fmt: skip
    why += "; status.tryWith starts a canary with it" if training.try_on else ""
    return _say(replace(seen, status=status), Truth.TRUE, Reason.TRAINED, why, now)


def _try_with(training: Training) -> str:
    """The command that makes a canary with the speculator of the object `tryOn`, and leads requests to it. All names in
    it have passed the API's patterns, so none ends a quotation."""
    if not training.try_on:
        return ""
    name, canary = training.try_on, f"{training.try_on[:40].rstrip('-.')}-trained"
    speculator = json.dumps({**training.method.served_by, "model": training.result})
    made = f'.metadata = {{name: "{canary}", namespace: .metadata.namespace}} | del(.status, .spec.route)'
    made += f' | .spec.replicas = 1 | .spec.verifier.servedName //= "{name}" | .spec.speculator = {speculator}'
    route = json.dumps({"spec": {"route": {"canary": {"name": canary, "analysis": {}}}}})
    there = f"-n {training.namespace}"
    return (
        f"kubectl get specdep {name} {there} -o json | jq '{made}' | kubectl create -f - && "
        f"kubectl patch specdep {name} {there} --type=merge -p '{route}'"
    )


def _tell_failure(seen: Seen, job: JobSeen, now: float) -> Step:
    if job.cause == "DeadlineExceeded":
        return _end(seen, Reason.DEADLINE_EXCEEDED, _over(seen.training), now)
    for found in job.results.values():
        error, told = mapping(found, "error"), reason_of(text(found, "error", "reason"))
        if told is not None and told is not Reason.TRAINED:
            words = "; ".join(filter(None, (text(error, "message"), text(error, "remedy"))))
            words = f"data.prompts: {words}" if text(error, "side") == "prompts" else words
            return _end(seen, told, words or job.trouble, now)
    if "OOMKilled" in job.ends:
        why = "a container used more memory than it may: lower sequenceLength, or use nodes with more memory"
        return _end(seen, Reason.OUT_OF_MEMORY, why, now)
    if job.ends & LOST:
        why = f"pods were taken away ({', '.join(sorted(job.ends & LOST))}); checkpoints stay in"
        return _end(seen, Reason.NODE_LOST, f"{why} {seen.training.output.uri}. {job.trouble}".rstrip(". "), now)
    return _end(seen, Reason.TRAINING_FAILED, job.trouble or job.cause or "the Job failed without a word", now)


def is_length(value: Any) -> bool:
    """True for an acceptance length, in tokens per step, that can be."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 1.0 <= value <= 65.0


def _over(training: Training) -> str:
    return (
        f"budget.hours ({training.hours}) are over; checkpoints stay in {training.output.uri}: to go on from them, "
        "create another object that differs in budget.hours alone"
    )


def _end(seen: Seen, reason: Reason, why: str, now: float) -> Step:
    status = {**seen.status, "stage": Stage.FAILED.value, "timeLeft": None, "endedAt": timestamp(now)}
    return _say(replace(seen, status=status), Truth.FALSE, reason, why, now)


def _cost(training: Training, status: Mapping[str, Any], end: float) -> dict[str, Any]:
    since = seconds_of(text(status, "runningSince"))
    if training.hourly_cost is None or since is None:
        return {}
    return {"cost": money(max(0.0, end - since) / 3600 * training.accelerators * training.hourly_cost)}


def _figures(status: Mapping[str, Any], stage: Stage, seen: Progress, now: float) -> dict[str, Any]:
    """Fields of status that a look at the log moves. What it does not tell stays as it was."""
    step, steps = min(seen.step, _LARGEST_STEP), min(seen.of, _LARGEST_STEP)
    since, first = seconds_of(text(status, "stageSince")), whole(status, "stageStep")
    found: dict[str, Any] = {"step": step, "steps": steps or None}
    found["progress"] = f"{min(100, 100 * step // steps)}%" if steps else f"{step}"
    if since is None or text(status, "stage") != stage or step < first:
        found |= {"stageSince": timestamp(now), "stageStep": step, "timeLeft": None}
    elif step > first and now > since:
        found["timeLeft"] = duration((steps - step) * (now - since) / (step - first)) if steps > step else None
    if seen.loss is not None:
        found["loss"] = number(seen.loss, 3)
    if seen.acceptance_length is not None:
        found["expectedAcceptance"] = number(seen.acceptance_length, 2)
    return found


def _say(seen: Seen, status: Truth, reason: Reason, why: str, now: float, job: Mapping[str, Any] | None = None) -> Step:
    generation = seen.training.generation
    told = with_condition(seen.status, Condition(ConditionType.TRAINED, status, reason, why), generation, now)
    told = {"stage": Stage.PREPARING.value, **told, "observedGeneration": generation}
    return Step({name: value for name, value in told.items() if value is not None}, job)


def with_condition(held: Mapping[str, Any], made: Condition, generation: int, now: float) -> dict[str, Any]:
    """The status `held` with a condition, whose time stays where the status of that condition does."""
    before = conditions_of(held)
    known = before.pop(made.type, {})
    since = text(known, "lastTransitionTime") if text(known, "status") == made.status else ""
    told = {
        "type": made.type.value,
        "status": made.status.value,
        "reason": made.reason.value,
        "message": made.message[:LONGEST_MESSAGE],
        "lastTransitionTime": since or timestamp(now),
        "observedGeneration": generation,
    }
    return {**held, "conditions": [*before.values(), told]}

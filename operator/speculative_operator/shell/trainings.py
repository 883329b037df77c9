"""Looks after SpeculatorTrainings: lists them, reads their Jobs, makes the next one, writes status. Run by `operator`.

A loop of its own, with nothing in the cache: trainings are few and take hours, and no mistake here may hold up what
serves. It deletes nothing: Jobs go by their own time, or with their object.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import random
from typing import Any

from speculative_operator.api.training import to_training
from speculative_operator.api.wire import SpecError
from speculative_operator.domain import names
from speculative_operator.domain.actions import Truth
from speculative_operator.domain.reading import conditions_of, is_controlled_by, items, mapping, mappings, text, whole
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.training import Stage
from speculative_operator.reconcile.snapshot.writing import FIGURES_SECONDS
from speculative_operator.reconcile.world import Event
from speculative_operator.render.environment import RenderError
from speculative_operator.settings import Settings
from speculative_operator.shell.bodies import Body, key_of, tags
from speculative_operator.shell.errors import ApiError, ConflictError, ForbiddenError, InvalidError, NotFoundError
from speculative_operator.shell.jobs import READ_WITHIN, phase_of, trouble_of
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.report import event_body, replacing
from speculative_operator.shell.resources import EVENT, JOB, OWNER, POD, TRAINING
from speculative_operator.shell.telemetry import Telemetry
from speculative_operator.training.drift import compare_acceptance
from speculative_operator.training.follow import OF_CONTAINER, Step, follow, has_ended, refused
from speculative_operator.training.jobs import LOOK, TRAINS, Means, job_name
from speculative_operator.training.progress import Progress, answers_progress, training_progress
from speculative_operator.training.seen import JobSeen, Seen, job_seen

log = logging.getLogger(__name__)

AWAY_PAUSE = 60.0
"""seconds without a look where the kind is not installed, or may not be listed."""
LINES = 40
"""Lines of a log that are read: one of a validation comes after each epoch."""
_JOB_OF_POD = "batch.kubernetes.io/job-name"
"""Label that the Job controller gives to pods."""
DONE_PAUSE = 600.0
"""seconds between two looks at what serves the speculator of a training that is done."""
REFUSED_PAUSE = 60.0
"""seconds between two looks at a training that was refused: images, quotas and permissions change by hand."""
_REASONS = {SpecError: Reason.SPEC_INVALID, ForbiddenError: Reason.FORBIDDEN}


class Trainings:
    """`leading` is asked before each write; `assigns_uids` says whether each namespace has user ids of its own."""

    def __init__(
        self,
        settings: Settings,
        kube: Kube,
        telemetry: Telemetry,
        leading: Callable[[], bool],
        assigns_uids: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._kube = kube
        self._telemetry = telemetry
        self._leading = leading
        self._assigns_uids = assigns_uids
        self._written: dict[str, float] = {}
        """uid -> monotonic seconds of the last status."""
        self._looked: dict[str, float] = {}
        """uid -> monotonic seconds of the last look."""

    async def run(self) -> None:
        """Look at all trainings for ever. Raises nothing but CancelledError."""
        told = ""
        while True:
            pause, wrong = self._settings.tick_seconds, ""
            try:
                await self.look()
            except (NotFoundError, ForbiddenError) as error:
                pause, wrong = AWAY_PAUSE, str(error)
            except ApiError as error:
                wrong = str(error)
            except Exception:  # its end would be that of the process
                log.exception("a look at trainings failed unexpectedly")
            if wrong and wrong != told:
                log.warning("trainings are not looked at: %s", wrong)
            told = wrong
            await asyncio.sleep(pause * (0.9 + 0.2 * random()))  # noqa: S311  spreads load only

    async def look(self) -> None:
        """Look once at each training that has not failed. Raises the first ApiError of namespaces where they cannot be
        listed, after those of the others."""
        found: list[Body] = []
        done: list[Body] = []
        wrong: ApiError | None = None
        for namespace in self._settings.namespace_list or ("",):
            try:
                found += [body async for body in self._kube.list(TRAINING, namespace)]
            except ApiError as error:
                wrong = wrong or error
        uids = {body["metadata"]["uid"] for body in found}
        self._written = {uid: at for uid, at in self._written.items() if uid in uids}
        self._looked = {uid: at for uid, at in self._looked.items() if uid in uids}
        writing: dict[tuple[str, str], str] = {}
        for body in sorted(found, key=lambda one: text(one, "metadata", "creationTimestamp")):
            now, status, uid = time.time(), mapping(body, "status"), body["metadata"]["uid"]
            rests = text(next(mappings(status, "conditions"), {}), "status") == Truth.FALSE
            if body["metadata"].get("deletionTimestamp"):
                continue
            if has_ended(status):
                told = text(status, "stage") == Stage.DONE and items(status, "expectedAcceptanceByK")
                if told and self._is_due(uid, DONE_PAUSE):
                    done.append(body)
                continue
            older = _older_writers(body, writing)
            if self._is_due(uid, REFUSED_PAUSE if rests else 0.0):
                await self._guard(body, self._one(body, now, older))
        serving: dict[str, dict[str, list[Body]]] = {}
        for body in done:
            await self._guard(body, self._compare(body, serving))
            await asyncio.sleep(0)
        if wrong is not None:
            raise wrong

    def _is_due(self, uid: str, pause: float) -> bool:
        """Whether the last look is `pause` seconds ago; then this is one."""
        now = time.monotonic()
        if now < self._looked.get(uid, -math.inf) + pause:
            return False
        self._looked[uid] = now
        return True

    async def _guard(self, body: Body, look: Coroutine[Any, Any, None]) -> None:
        """Await a look at one training, whose errors hold up no other."""
        try:
            await look
        except (ApiError, SpecError) as error:
            log.warning("%s", error, extra=tags(key_of(body)))
        except Exception:
            log.exception("a look at a training failed unexpectedly", extra=tags(key_of(body)))

    async def _compare(self, body: Body, serving: dict[str, dict[str, list[Body]]]) -> None:
        """Compare what a training that is done let expect with what serves. `serving`: SpeculativeDeployments by
        namespace and speculator, as far as they have been listed; a namespace that cannot be listed has none."""
        namespace, status = key_of(body)[0], mapping(body, "status")
        if namespace not in serving:
            known = serving[namespace] = {}
            async for one in self._kube.list(OWNER, namespace):
                known.setdefault(text(one, "spec", "speculator", "model").rstrip("/"), []).append(one)
        using = serving[namespace].get(text(status, "speculator"), [])
        if using:
            training = to_training(body, self._settings.trainer_image)
            await self._tell(body, Step(compare_acceptance(training, status, using, time.time())))

    async def _one(self, body: Body, now: float, older: Mapping[str, str]) -> None:
        """Look at one training; `older`: its fields with a folder to which an older one writes -> that one's name."""
        status, generation = mapping(body, "status"), whole(body, "metadata", "generation")
        try:
            for field, first in older.items():
                raise SpecError(field, text(body, "spec", field), f"SpeculatorTraining {first} writes there: wait")
            step = await self._step(body, now)
            if step.job is not None:
                await self._kube.apply(JOB, step.job, still=self._leading)
                self._telemetry.action("apply", JOB.kind)
                log.info("applied Job %s", step.job["metadata"]["name"], extra=tags(key_of(body)))
        except ConflictError:
            return  # there is one by that name: the next look sees whose it is
        except (SpecError, RenderError, InvalidError, ForbiddenError) as error:
            step = refused(status, generation, _REASONS.get(type(error), Reason.RENDER_INVALID), str(error), now)
        await self._tell(body, step)

    async def _step(self, body: Body, now: float) -> Step:
        training = to_training(body, self._settings.trainer_image)
        if not training.image or not self._settings.job_image:
            lacking = "image" if not training.image else "the operator's setting JOB_IMAGE"
            raise SpecError(lacking, None, "name the image: this installation has no default")
        status = mapping(body, "status")
        train, pods = await self._job(body, TRAINS, now)
        look = None
        if train is None and not (text(status, "jobStartedAt") and whole(status, "verifierLayers")):
            look, _ = await self._job(body, LOOK, now)
        progress = await self._progress(status, train, pods, training.epochs) if train and train.owned else None
        means = Means(self._settings.job_image, self._assigns_uids())
        return follow(Seen(training, status, look, train, progress), means, now)

    async def _job(self, owner: Body, kind: str, now: float) -> tuple[JobSeen | None, Sequence[Body]]:
        """A Job of a training, None where there is none by its name, and its pods, newest first."""
        namespace, name = key_of(owner)[0], job_name(key_of(owner)[1], kind)
        try:
            job = await self._kube.get(JOB, namespace, name)
        except NotFoundError:
            return None, ()
        pods = [pod async for pod in self._kube.list(POD, namespace, f"{_JOB_OF_POD}={name}")]
        pods = [pod for pod in pods if is_controlled_by(pod, job["metadata"]["uid"])]
        pods.sort(key=lambda pod: text(pod, "metadata", "creationTimestamp"), reverse=True)
        phase = phase_of(job, pods, now)
        trouble = trouble_of(job, pods, phase, now)
        return job_seen(job, pods, owner["metadata"]["uid"], phase, trouble), pods

    async def _progress(self, status: Body, job: JobSeen, pods: Sequence[Body], epochs: int) -> Progress | None:
        """What the log of the running container told last; None where it told nothing, or may not be read."""
        stage = OF_CONTAINER.get(job.running)
        if stage not in (Stage.ANSWERING, Stage.TRAINING):
            return None
        meta = pods[0]["metadata"]
        try:
            async with asyncio.timeout(READ_WITHIN):
                log_end = await self._kube.last_line(meta["namespace"], meta["name"], job.running, LINES)
        except (ApiError, TimeoutError) as error:
            log.debug("cannot read the progress of pod %s: %s", meta["name"], error)
            return None
        if stage is Stage.ANSWERING:
            return answers_progress(log_end)
        known = text(status, "stage") == Stage.TRAINING and whole(status, "steps")
        return training_progress(log_end, known // max(1, epochs) if known else 0)

    async def _tell(self, body: Body, step: Step) -> None:
        """Write status and post an Event, where there is news; figures now and then."""
        meta, held = body["metadata"], mapping(body, "status")
        old, new = conditions_of(held), conditions_of(step.status)
        news = (text(held, "stage"), old) != (text(step.status, "stage"), new)
        due = time.monotonic() >= self._written.get(meta["uid"], -math.inf) + FIGURES_SECONDS
        if held == step.status or not (news or due):
            return
        patch = {"metadata": {"uid": meta["uid"]}, "status": replacing(held, step.status)}
        await self._kube.merge(TRAINING, meta["namespace"], meta["name"], patch, "status", still=self._leading)
        self._telemetry.action("status", names.TRAINING_KIND)
        self._written[meta["uid"]] = time.monotonic()
        for one in new.values():
            reason = text(one, "reason")
            if reason == text(old.get(text(one, "type")), "reason"):
                continue
            kind = "Warning" if text(one, "status") == Truth.FALSE else "Normal"
            event = Event(kind, Reason(reason), text(one, "message"))
            instance = os.environ.get("POD_NAME") or names.OPERATOR
            await self._kube.create(EVENT, meta["namespace"], event_body(body, event, instance))
            self._telemetry.event(event.type, reason)


def _older_writers(body: Body, writing: dict[tuple[str, str], str]) -> dict[str, str]:
    """Fields of a training with a folder to which an older one writes -> that one's name. `writing`: namespace and
    folder -> the oldest that writes there, to which this one is added."""
    namespace, name = key_of(body)
    folders = {field: text(body, "spec", field).rstrip("/") for field in ("output", "copyTo")}
    first = {field: writing.setdefault((namespace, one), name) for field, one in folders.items() if one}
    return {field: one for field, one in first.items() if one != name}

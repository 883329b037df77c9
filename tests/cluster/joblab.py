"""Jobs of a cluster with a node as the operator sees them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.cluster.podlab import PodLab

from speculative_operator.domain import names
from speculative_operator.domain.jobs import JobSeen
from speculative_operator.settings import Settings
from speculative_operator.shell.cache import Cache, Snapshot
from speculative_operator.shell.jobs import Jobs
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.resources import CHILD_SELECTOR, CLAIM, JOB, POD
from speculative_operator.shell.telemetry import Telemetry

Json = dict[str, Any]


class JobLab:
    """The shell's client, cache and looks at Jobs, on a namespace of a cluster."""

    def __init__(self, lab: PodLab, kube: Kube) -> None:
        self.lab = lab
        self.kube = kube
        self.jobs = Jobs(kube, time.monotonic)
        owner = {"name": "gemma", "namespace": lab.namespace, "uid": "o", "resourceVersion": "1"}
        self.owner: Json = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": owner}

    async def snapshot(self) -> Snapshot:
        """As the operator would have it after a listing. Jobs get their owner here: the cluster has no such object, and
        would collect what it owns."""
        cache = Cache()
        cache.put(self.owner)
        for resource in (CLAIM, JOB, POD):
            async for body in self.kube.list(resource, self.lab.namespace, CHILD_SELECTOR):
                if resource is JOB:
                    body["metadata"]["ownerReferences"] = [{"uid": self.owner["metadata"]["uid"]}]
                cache.put(body)
        found = cache.snapshot((self.lab.namespace, "gemma"))
        assert found is not None
        return found

    async def until(self, what: str, check: Callable[[JobSeen], bool]) -> JobSeen:
        """Look until the one Job is as asked for."""
        deadline = time.monotonic() + 120
        while True:
            (seen,) = await self.jobs.observe(await self.snapshot(), time.time()) or (None,)
            if seen is not None and check(seen):
                return seen
            assert time.monotonic() < deadline, f"not {what}: {seen}; {self.lab.describe()}"
            await asyncio.sleep(0.2)


@asynccontextmanager
async def job_lab(lab: PodLab, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[JobLab]:
    monkeypatch.setenv("KUBECONFIG", str(lab.cluster.kubeconfig))
    kube = Kube(Settings(), Telemetry())
    await kube.start()
    yield JobLab(lab, kube)
    await kube.close()

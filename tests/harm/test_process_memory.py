"""Listing thousands of objects anew takes the memory of their whole bodies at once, beside what is held already."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from speculative_operator.domain import names
from speculative_operator.settings import Settings
from speculative_operator.shell.cache import Cache
from speculative_operator.shell.resources import CHILD_BY_KIND, Resource
from speculative_operator.shell.resync import Resync

OBJECTS = 2000
LABELS = {names.LABEL_MANAGED_BY: names.OPERATOR, names.LABEL_DEPLOYMENT: "gemma"}


class Managed(dict[str, Any]):
    """Who manages which field: most of a body, and not kept."""


async def test_a_listing_never_holds_the_whole_bodies_of_all_objects() -> None:
    seen: list[weakref.ref[Managed]] = []
    most = 0

    async def pages(resource: Resource, *_: Any) -> AsyncIterator[tuple[int, list[dict[str, Any]]]]:
        nonlocal most
        for number in range(OBJECTS):
            manager = Managed(manager="kubectl")
            seen.append(weakref.ref(manager))
            meta: dict[str, Any] = {"name": f"s{number}", "namespace": "ns", "uid": f"u{number}", "labels": LABELS}
            meta["ownerReferences"] = [{"uid": "o"}]
            body = {"apiVersion": "v1", "kind": resource.kind, "metadata": {**meta, "managedFields": [manager]}}
            del manager
            yield 1, [body]
            del body
            most = max(most, sum(one() is not None for one in seen[-100:]))

    cache = Cache()
    meta = {"name": "gemma", "namespace": "ns", "uid": "o", "resourceVersion": "1"}
    cache.put({"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta})
    kube: Any = SimpleNamespace(pages=pages)
    await Resync(Settings(), kube, cache, lambda _: None, frozenset).refresh({CHILD_BY_KIND["Service"]})
    assert len(cache.objects_of("Service")) == OBJECTS
    assert most <= 2

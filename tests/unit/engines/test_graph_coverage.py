"""Every K that is offered finds a full CUDA graph at nearly every batch size, by vLLM's rules, told here once more.

vLLM 0.32 v1/worker/gpu/cudagraph_utils.py: `_init_candidates` captures a graph for each size rounded up to whole
requests of each K; `dispatch` looks at the next captured number of tokens alone. tests/vllm holds this to that code.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace

from tests.unit.engines.building import spec
from tests.unit.failing import failing

from speculative_operator.domain.spec import DeploymentSpec, Method, OffPolicy
from speculative_operator.domain.table import KnobSpace, KTable
from speculative_operator.engines.registry import engine_for
from speculative_operator.engines.vllm import graphs
from speculative_operator.engines.vllm.plan import plan
from speculative_operator.reconcile.pair.verdicts import tuner_facts
from speculative_operator.reconcile.table.deciding import policy_of
from speculative_operator.tuner import initial_table

CLASSES = {
    "L4": "nvidia.com/gpu", "": "nvidia.com/gpu", "H100-SXM": "nvidia.com/gpu", "B200-SXM": "nvidia.com/gpu",
    "MI300X": "amd.com/gpu",
}  # fmt: skip
METHODS = (Method.EAGLE3, Method.DRAFT_MODEL, Method.NGRAM, Method.MTP, Method.DFLASH)


def on(
    product: str, requests: int, method: Method = Method.EAGLE3, policy: OffPolicy = OffPolicy.SKIP
) -> DeploymentSpec:
    subject = spec(method, verifier={"max_num_seqs": requests}, off_policy=policy)
    return replace(subject, accelerator=replace(subject.accelerator, product=product, resource=CLASSES[product]))


def full_graphs(knobs: KnobSpace) -> dict[int, set[int]]:
    """Captured tokens -> K of the full graphs with so many."""
    found: dict[int, set[int]] = {}
    largest, ceiling = knobs.max_batch * (max(knobs.ks) + 1), knobs.capture_sizes[-1]
    for size in knobs.capture_sizes:
        for k in knobs.ks:
            tokens = -(-size // (k + 1)) * (k + 1)
            if tokens <= min(largest, ceiling) and tokens // (k + 1) <= knobs.max_batch:
                found.setdefault(tokens, set()).add(k)
    return found


def has_graph(found: dict[int, set[int]], ascending: list[int], requests: int, k: int) -> bool:
    place = bisect_left(ascending, requests * (k + 1))
    return place < len(ascending) and k in found[ascending[place]]


def offered(knobs: KnobSpace, k: int) -> range:
    """Batch sizes at which a table may hold `k`: those within the largest graph; the smallest K at all."""
    widest = knobs.capture_sizes[-1] // (k + 1) if k != min(knobs.ks) else knobs.max_batch
    return range(1, min(widest, knobs.max_batch) + 1)


def shares(knobs: KnobSpace) -> Iterator[tuple[int, float]]:
    """Each K, and the share of its batch sizes that find a full graph."""
    found = full_graphs(knobs)
    ascending = sorted(found)
    for k in knobs.ks:
        sizes = offered(knobs, k)
        yield k, sum(has_graph(found, ascending, requests, k) for requests in sizes) / len(sizes)


def test_every_k_has_full_graphs_at_95_percent_of_its_batch_sizes() -> None:
    """For every maxNumSeqs that is itself a size on vLLM's grid, and for round ones that are not."""
    sizes = (*range(8, 256, 8), *range(256, 1025, 16), 100, 250, 300, 500, 1000)
    for product, method, requests in itertools.product(CLASSES, METHODS, sizes):
        subject = on(product, requests, method)
        knobs = engine_for(subject).knobs(subject)
        assert knobs.ks == (0, 1, 3, 7)
        assert {k: share for k, share in shares(knobs) if share < 0.95} == {}, (product, method, requests)


def test_the_first_table_and_the_boot_schedule_stay_within_the_graphs() -> None:
    """But for the smallest K, which must serve at every batch size."""
    policies = (OffPolicy.SKIP, OffPolicy.NEVER)
    assert failing(within_the_graphs, itertools.product(CLASSES, (8, 64, 128, 256, 512, 1024), policies)) == []


def within_the_graphs(case: tuple[str, int, OffPolicy]) -> None:
    product, requests, policy = case
    subject = on(product, requests, policy=policy)
    engine = engine_for(subject)
    knobs = engine.knobs(subject)
    for table in (initial_table(policy_of(subject, knobs=knobs, facts=tuner_facts(subject, None))), boot(subject)):
        assert table.max_batch == requests
        eager = [row for row in table if row.last * (row.k + 1) > knobs.capture_sizes[-1]]
        assert all(row.k == min(knobs.ks) or row.last == row.first for row in eager), table
    assert boot(subject).ks == set(knobs.ks)


def boot(subject: DeploymentSpec) -> KTable:
    return KTable.from_rows(graphs.boot(subject, plan(subject)))

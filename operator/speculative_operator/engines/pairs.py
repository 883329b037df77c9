"""What an engine makes of a pair of models before a pod runs: the shapes of models and accelerator that the
catalogue knows, the speculator that it can serve where the spec leaves it open (`speculator: {auto: true}`), and
what the judge of pairs must know of its release.

Called by reconcile and by the commands that need a whole spec. This module knows nothing of earlier picks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from speculative_operator.domain.memo import Memo, digest
from speculative_operator.domain.models import ModelShape, PairFacts
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, EngineType, Method, Mode, ModelSource, Scheme, Speculator
from speculative_operator.domain.vllm import drafting_kv_cache_dtype
from speculative_operator.engines.base import Engine, Notice
from speculative_operator.engines.matrix.rows import Version, parse_version
from speculative_operator.engines.matrix.wrong_outputs import wrong_outputs
from speculative_operator.engines.registry import engine_for
from speculative_operator.engines.vllm.facts import facts_of
from speculative_operator.pairing.catalogue import Catalogue, Choice, pick, stem, tail
from speculative_operator.pairing.catalogue_rows import Entry
from speculative_operator.pairing.fit_room import MEMORY_SHARE
from speculative_operator.pairing.pair import EngineRules, Fact
from speculative_operator.pairing.ranking import Worth, worth_of
from speculative_operator.physics.catalog import find_accelerator, find_model
from speculative_operator.physics.draft_costs import kv_tokens

_WEIGHT_BYTES = (
    ("unquantized", 2.0), ("fp4", 0.5), ("int4", 0.5), ("4bit", 0.5), ("4-bit", 0.5), ("w4", 0.5), ("q4_", 0.5),
    ("fp8", 1.0), ("int8", 1.0), ("8bit", 1.0), ("8-bit", 1.0), ("w8", 1.0), ("q8_", 1.0), ("awq", 0.5), ("gptq", 0.5),
    ("bf16", 2.0), ("fp16", 2.0),
)  # fmt: skip
"""Bytes per parameter by what the name of a quantization contains, the surest first; scales and zero points are
neglected."""


def pair_facts(spec: DeploymentSpec) -> PairFacts:
    """Shapes of verifier, speculator and accelerator as far as the catalogue knows them, and what KV cache they leave
    room for; the rest is None."""
    verifier = _shape(spec.verifier.source, spec.verifier.kv_cache_dtype)
    if verifier is not None:
        size = min(verifier.bytes_per_parameter, _named_bytes(spec.verifier.quantization.lower()) or 2.0)
        verifier = replace(verifier, bytes_per_parameter=size)
    facts = PairFacts(
        verifier=verifier,
        speculator=_shape(spec.speculator.source, drafting_kv_cache_dtype(spec)) if spec.speculator else None,
        accelerator=find_accelerator(spec.accelerator.product) if spec.accelerator.product else None,
        accelerators=spec.verifier.tensor_parallel_size,
        method=spec.speculator.method if spec.speculator is not None else None,
    )
    held, whole = (capacity(spec, facts, with_speculator=one) or None for one in (True, False))
    return replace(facts, kv_capacity_tokens=held, kv_capacity_tokens_without_speculator=whole)


def unknown_accelerator(spec: DeploymentSpec) -> tuple[Notice, ...]:
    """A notice where the spec names an accelerator of which the catalogue has no figures: else a slip in its name would
    pass for one that nobody has measured."""
    product = spec.accelerator.product
    if not product or find_accelerator(product) is not None:
        return ()
    told = f"accelerator.product {product!r} is not known: no gain is expected of it and no memory checked"
    return (Notice(Reason.ACCELERATOR_UNKNOWN, f"{told}; write a name of node labels or data sheets, as H100-SXM"),)


def capacity(spec: DeploymentSpec, facts: PairFacts, *, with_speculator: bool) -> int | None:
    """Tokens that the KV cache of one engine holds, as stated in `facts` or by the shapes there; 0 when the weights
    alone seem not to fit, None when unknown."""
    percent = spec.verifier.gpu_memory_utilization_percent
    share = percent / 100.0 if percent is not None else MEMORY_SHARE
    together = replace(facts, accelerators=facts.accelerators * spec.verifier.pipeline_parallel_size)
    return kv_tokens(together, with_speculator=with_speculator, memory_share=share)


def _shape(source: ModelSource | None, kv_cache_dtype: str) -> ModelShape | None:
    """The catalogue's shape of the model at `source`, with one byte per cached value for a KV cache of 8 bits."""
    shape = _find_shape(source.location) if source is not None else None
    return replace(shape, kv_bytes_per_value=1.0) if shape is not None and kv_cache_dtype.startswith("fp8") else shape


def _find_shape(location: str) -> ModelShape | None:
    """The catalogue's shape by the name, else by the name without its quantization, which then tells the bytes of a
    weight. None where the name is not known, or tells a quantization of no known width (`-GGUF`)."""
    shape = find_model(location)
    if shape is not None:
        return shape
    plain = stem(location)
    shape, size = find_model(plain), _named_bytes(tail(location)[len(plain) :])
    return replace(shape, bytes_per_parameter=size) if shape is not None and size is not None else None


def _named_bytes(text: str) -> float | None:
    """Bytes per weight by the words of `text`, in lower case; 2 when it is empty, None when it tells no width."""
    return next((size for part, size in _WEIGHT_BYTES if part in text), None) if text else 2.0


Key = tuple[str, Method]
"""URI in lower case, and method."""
_OPEN = (Mode.AUTO, Mode.RECOMMEND)
"""Modes in which K is the operator's to choose, and the catalogue's K where it starts."""


def choose(
    spec: DeploymentSpec,
    among: Catalogue,
    base_models: tuple[str, ...] = (),
    *,
    without: frozenset[Key] = frozenset(),
    only: Key | None = None,
    memo: Memo | None = None,
) -> Choice:
    """Choose the best catalogue entry for the verifier of `spec` that its engine serves, by what it is worth there.

    Entries with a key in `without` are passed over; with `only`, all but the entry of that key.

    `memo` holds recent choices: engines take milliseconds to say what they serve.
    """
    asked = replace(spec, generation=0, replicas=1, paused=False)
    engine = engine_for(spec)

    def worth(entry: Entry) -> Worth | None:
        key, whole = key_of(entry), with_entry(asked, entry)
        if key in without or only not in (None, key) or hindrance(whole, engine):
            return None
        return worth_of(entry, pair_facts(whole), engine.knobs(whole), whole.speculation.workload)

    key = ("choose", among, digest(asked), base_models, without, only)
    uri = spec.verifier.source.uri
    return (memo or Memo()).get(key, lambda: pick(uri, base_models, among, worth))


def key_of(entry: Entry) -> Key:
    """The key by which speculators for one verifier differ: URI in lower case, and method."""
    return (entry.uri.lower(), entry.method)


def with_entry(spec: DeploymentSpec, entry: Entry) -> DeploymentSpec:
    """`spec` with the speculator of `entry`, starting at its K."""
    return with_speculator(spec, speculator(entry.method, entry.uri, one_pass=entry.one_pass), entry.k)


def speculator(method: Method, uri: str, *, one_pass: bool) -> Speculator:
    """The speculator as a value of the spec; an empty `uri` says that its weights are part of the verifier."""
    scheme, _, location = uri.partition("://")
    return Speculator(method, ModelSource(Scheme(scheme), location) if uri else None, parallel_drafting=one_pass)


def with_speculator(spec: DeploymentSpec, desired: Speculator | None, k: int | None) -> DeploymentSpec:
    """`spec` with `desired`; `k` is where tuning starts, unless the spec says or fixes it."""
    speculation = spec.speculation
    if k is not None and speculation.num_speculative_tokens is None and speculation.mode in _OPEN:
        start = min(k, speculation.max_speculative_tokens)
        speculation = replace(speculation, num_speculative_tokens=start)
    return replace(spec, speculator=desired, speculation=speculation)


def hindrance(spec: DeploymentSpec, engine: Engine) -> str:
    """Why the engine does not serve `spec` with its speculator, though it would without; empty where it does."""
    alone = {one.message for one in engine.refusals(replace(spec, speculator=None))}
    return next((one.message for one in engine.refusals(spec) if one.message not in alone), "")


SGLANG_READ: Version = (0, 5, 23)
"""SGLang release whose speculative/standalone_worker_v2.py refuses a draft model of another `vocab_size`."""


def rules_of(spec: DeploymentSpec) -> EngineRules:
    """The rules of the engine and release that `spec` names. Never raises for a spec that has passed the API."""
    engine = engine_for(spec)
    refused = tuple(
        (one.field, one.message) for one in engine.refusals(spec) if one.reason is not Reason.UNSUPPORTED_SOURCE
    )
    k = max(engine.knobs(spec).ks, default=0) if spec.speculates else 0
    version = parse_version(spec.engine.version)
    facts: Mapping[Fact, frozenset[str]] = {}
    if spec.engine.type is EngineType.VLLM and version is not None:
        facts = facts_of(version)
    elif spec.engine.type is EngineType.SGLANG and version == SGLANG_READ:
        facts = {Fact.SAME_VOCABULARY_SIZE: frozenset({""})}
    wrong = wrong_outputs(spec, version) if version is not None else ()
    return EngineRules(spec.engine.type, spec.engine.version, refused, k or None, facts, wrong)

"""Everything one emulated engine is, resolved from flags, environment and catalogue (pure).

Called by `__main__` with the parsed arguments; `server` and `core` take the result. Errors that vLLM raises before it
loads weights are raised here; those that it meets later come from `EngineConfig.lookup` and `kv.pool`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from speculative_lab.emulator import schedule
from speculative_lab.emulator.captures import LIMIT, LIMIT_BLACKWELL, CaptureFlags, DecodeShape, capture_sizes
from speculative_lab.emulator.drafting import Drafting, Reaction, Runner, drafting
from speculative_lab.emulator.errors import ConfigError, LateError, invalid
from speculative_lab.emulator.kv import KvPool
from speculative_lab.emulator.kv import pool as kv_pool
from speculative_lab.emulator.settings import Settings
from speculative_lab.emulator.shapes import Shapes, shapes
from speculative_lab.emulator.speculative import Speculative, checked, raw_config
from speculative_operator.domain.table import Actuator, KnobSpace

DEFAULT_BATCHED_TOKENS = 8192
LARGE_ACCELERATOR_BYTES = 70 * 2**30
"""From this size on vLLM's default for --max-num-seqs is 1024 (A100 excepted), below it 256."""
ANY_ADDRESS = "0.0.0.0"  # noqa: S104  (vLLM's default; a pod is reached from outside)
BLACKWELL = ("B200", "B300", "GB200", "GB300")


class Drain(StrEnum):
    """What a server does after SIGTERM until running requests have ended."""

    REFUSES = "refuses"
    """It answers new requests with an error (vLLM)."""
    SERVES = "serves"
    """It serves new requests too, and says that it is not healthy (SGLang)."""
    CLOSES = "closes"
    """It takes no new connections (TensorRT-LLM)."""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """What the HTTP front end needs."""

    served_names: tuple[str, ...]
    host: str = ANY_ADDRESS
    port: int = 8000
    certificate: str = ""
    """File with the certificate by which it answers by HTTPS, whose private key is in `key`; empty: by HTTP."""
    key: str = ""
    shutdown_timeout: float = 0.0
    drain: Drain = Drain.REFUSES
    checks_model: bool = True
    """A request for a model of another name is answered 404; else the name is not looked at."""
    metrics: bool = True
    """False when no metrics are exposed."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What the engine core needs."""

    model: str
    shapes: Shapes
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int = 16
    gpu_memory_utilization: float = 0.9
    kv_cache_memory_bytes: int | None = None
    num_gpu_blocks_override: int | None = None
    cache_dtype: str = "auto"
    data_parallel_size: int = 1
    speculative: Speculative | None = None
    drafting: Drafting | None = None
    captures: CaptureFlags = field(default_factory=CaptureFlags)
    scheduler_cls: str | None = None
    async_scheduling: bool = True
    keeps_drafts: bool = False
    """Each request keeps what it drafted and had accepted, for engines that tell it when the request ends."""

    @property
    def max_k(self) -> int:
        return self.speculative.k if self.speculative else 0

    @property
    def verifies_adaptively(self) -> bool:
        """Whether only drafts worth their time are verified. vLLM ignores the key where nothing estimates them."""
        asked = self.speculative is not None and self.speculative.adaptive_verification
        return asked and self.drafting is not None and not self.drafting.draft_free

    @property
    def always_rejects(self) -> bool:
        """Whether steps without drafts to verify are sampled as if there were some, as the V1 runner does."""
        return self.drafting is not None and self.drafting.runner is Runner.V1

    def lookup(self) -> list[int] | None:
        """K for each number of scheduled requests, or None when K is constant. Raises LateError for a bad schedule.

        With data parallelism vLLM drops the schedule and keeps the constant K. Where the drafter would die of a smaller
        K, in the middle of serving, this refuses it at start.
        """
        if self.speculative is None or self.speculative.schedule is None or self.data_parallel_size > 1:
            return None
        table = schedule.lookup(self.speculative.schedule, self.max_num_seqs, self.speculative.k)
        dies = self.drafting is not None and self.drafting.reaction is Reaction.DIES
        if dies and min(table[1:]) < self.speculative.k:
            raise LateError(f"AssertionError: the drafter of {self.speculative.method} cannot draft fewer than its K")
        return table

    def capture_sizes(self) -> tuple[int, ...]:
        """Tokens of the captured graphs, ascending; empty with --enforce-eager. Raises ConfigError for bad flags.

        An invalid schedule counts as none: it is refused later.
        """
        try:
            table = self.lookup()
        except LateError:
            table = None
        behaviour = self.drafting
        blackwell = self.shapes.accelerator.name.upper().startswith(BLACKWELL)
        shape = DecodeShape(
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_k=self.max_k,
            lookup=tuple(table or ()),
            limit=LIMIT_BLACKWELL if blackwell else LIMIT,
            whole_multiples=behaviour is not None and behaviour.runner is Runner.V1 and table is None,
        )
        return capture_sizes(self.captures, shape)

    def knobs(self) -> KnobSpace:
        """The knob space that physics prices steps with."""
        table, sizes = self.lookup(), self.capture_sizes()
        behaviour, ceiling = self.drafting, max(sizes, default=0)
        if behaviour is None:
            return KnobSpace(Actuator.NONE, (0,), self.max_num_seqs, ceiling, sizes)
        return KnobSpace(
            actuator=Actuator.RESTART if table is None else Actuator.LIVE,
            ks=tuple(sorted({*(table[1:] if table else ()), self.max_k})),
            max_batch=self.max_num_seqs,
            capture_ceiling_tokens=ceiling,
            capture_sizes=sizes,
            draft_passes_follow_k=behaviour.reaction is not Reaction.VERIFIES_LESS,
            passes_at_zero=behaviour.passes_at_zero,
            drafts_blocks=behaviour.drafts_blocks,
            draft_free=behaviour.draft_free,
            full_graphs=behaviour.runner is Runner.V2,
        )

    def pool(self) -> KvPool:
        """The KV pool; raises LateError when weights or one request of full length do not fit."""
        return kv_pool(
            self.shapes,
            block_size=self.block_size,
            utilization=self.gpu_memory_utilization,
            max_model_len=self.max_model_len,
            given_bytes=self.kv_cache_memory_bytes,
            given_blocks=self.num_gpu_blocks_override,
        )


def server_config(namespace: argparse.Namespace, environment: Mapping[str, str]) -> ServerConfig:
    """Front-end part of the arguments. `VLLM_PORT` as a service link sets it is refused, as by vLLM."""
    port = environment.get("VLLM_PORT", "")
    if port and not port.isdecimal():
        raise ConfigError(
            f"VLLM_PORT '{port}' appears to be a URI. This may be caused by a Kubernetes service discovery issue:"
            " a Service named vllm injects it; set enableServiceLinks: false in the pod."
        )
    return ServerConfig(
        served_names=tuple(namespace.served_model_name or (namespace.model,)),
        host=namespace.host or ANY_ADDRESS,
        port=namespace.port,
        certificate=namespace.ssl_certfile or "",
        key=namespace.ssl_keyfile or "",
        shutdown_timeout=namespace.shutdown_timeout,
    )


def engine_config(namespace: argparse.Namespace, environment: Mapping[str, str], settings: Settings) -> EngineConfig:
    """Engine part of the arguments. Raises ConfigError or ValidationError for what vLLM refuses at start."""
    _check_numbers(namespace)
    raw = raw_config(namespace)
    speculative = checked(raw, namespace.tensor_parallel_size) if raw else None
    worker = namespace.worker_extension_cls or ""
    behaviour = drafting(speculative, environment, worker) if speculative else None
    found = shapes(
        namespace.model,
        speculative,
        settings,
        tensor_parallel_size=namespace.tensor_parallel_size,
        quantization=namespace.quantization or "",
        kv_cache_dtype=namespace.kv_cache_dtype,
    )
    max_num_seqs = namespace.max_num_seqs or _default_max_num_seqs(found)
    max_model_len = _max_model_len(namespace.max_model_len, found)
    config = EngineConfig(
        model=namespace.model,
        shapes=found,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=namespace.max_num_batched_tokens or max(DEFAULT_BATCHED_TOKENS, max_num_seqs),
        block_size=namespace.block_size,
        gpu_memory_utilization=namespace.gpu_memory_utilization,
        kv_cache_memory_bytes=namespace.kv_cache_memory_bytes,
        num_gpu_blocks_override=namespace.num_gpu_blocks_override,
        cache_dtype=namespace.kv_cache_dtype,
        data_parallel_size=namespace.data_parallel_size,
        speculative=speculative,
        drafting=behaviour,
        captures=CaptureFlags(
            eager=bool(namespace.enforce_eager),
            sizes=tuple(namespace.cudagraph_capture_sizes or ()),
            largest=namespace.max_cudagraph_capture_size,
        ),
        scheduler_cls=namespace.scheduler_cls,
        async_scheduling=namespace.async_scheduling is not False,
    )
    _check_budget(config)
    return config


def _check_numbers(namespace: argparse.Namespace) -> None:
    at_least_one = (
        "max_num_seqs",
        "max_num_batched_tokens",
        "block_size",
        "tensor_parallel_size",
        "data_parallel_size",
    )
    wrong = [name for name in at_least_one if getattr(namespace, name) is not None and getattr(namespace, name) < 1]
    if not 0 < namespace.gpu_memory_utilization <= 1:
        wrong.append("gpu_memory_utilization")
    if wrong:
        raise invalid("VllmConfig", *((name, "Input should be greater than 0") for name in wrong))


def _default_max_num_seqs(found: Shapes) -> int:
    large = found.accelerator.memory_bytes >= LARGE_ACCELERATOR_BYTES and not found.accelerator.name.startswith("A100")
    return 1024 if large else 256


def _max_model_len(asked: int | None, found: Shapes) -> int:
    derived = found.verifier.max_position or 32768
    if asked is None or asked == -1:
        return derived
    if asked < 1:
        raise invalid("ModelConfig", ("max_model_len", "Input should be greater than 0"))
    if asked > derived:
        raise ConfigError(
            f"User-specified max_model_len ({asked}) is greater than the derived max_model_len"
            f" (max_position_embeddings={derived} in model's config.json)."
        )
    return asked


def _check_budget(config: EngineConfig) -> None:
    budget = config.max_num_batched_tokens
    if budget < config.max_num_seqs:
        raise ConfigError(
            f"max_num_batched_tokens ({budget}) must be greater than or equal to max_num_seqs ({config.max_num_seqs})."
        )
    slots = _drafting_slots(config.speculative)
    if budget <= slots:
        raise ConfigError(f"max_num_batched_tokens ({budget}) must exceed the {slots} drafting slots of one request")


def _drafting_slots(speculative: Speculative | None) -> int:
    """Extra token slots that one request takes while drafting."""
    if speculative is None:
        return 0
    method, k = speculative.method, speculative.k
    if method == "dspark" or (speculative.parallel_drafting and method in ("eagle", "eagle3")):
        return k - 1
    if speculative.parallel_drafting:
        return k
    return 1 if method == "draft_model" else 0

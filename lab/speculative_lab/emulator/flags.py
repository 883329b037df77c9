"""The flags of `vllm serve` 0.32 that the emulator knows, as data: `arguments` builds the parser from them.

Flag names are those of vLLM's argument parser. A flag that is not here is refused as vLLM refuses an unknown one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """Form of a flag's value."""

    TEXT = "text"
    TEXTS = "texts"
    INT = "int"
    INTS = "ints"
    HUMAN_INT = "human_int"
    """Whole number that may end in k, K, m, M, g or G (1k = 1000, 1K = 1024)."""
    FLOAT = "float"
    JSON = "json"
    TOGGLE = "toggle"
    """`--flag` and `--no-flag`."""
    SWITCH = "switch"
    """`--flag` alone."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One option. `names` begin with the long name."""

    names: tuple[str, ...]
    kind: Kind = Kind.TEXT
    default: Any = None
    choices: tuple[str, ...] = ()


def flags_of(kind: Kind, text: str) -> tuple[Flag, ...]:
    """Flags of one kind without default from names separated by blanks; `/` joins aliases."""
    return tuple(Flag(tuple(entry.split("/")), kind) for entry in text.split())


SPECULATIVE_METHODS = (
    "ngram",
    "ngram_gpu",
    "suffix",
    "medusa",
    "mlp_speculator",
    "draft_model",
    "eagle",
    "eagle3",
    "mtp",
    "dflash",
    "dspark",
    "extract_hidden_states",
    "custom_class",
)

EFFECTIVE = (
    Flag(("--host",)),
    Flag(("--port",), Kind.INT, 8000),
    Flag(("--headless",), Kind.SWITCH),
    Flag(("--ssl-certfile",)),
    Flag(("--ssl-keyfile",)),
    Flag(("--served-model-name",), Kind.TEXTS),
    Flag(("--revision",)),
    Flag(("--shutdown-timeout",), Kind.FLOAT, 0.0),
    Flag(("--max-model-len",), Kind.HUMAN_INT),
    Flag(("--tensor-parallel-size", "-tp"), Kind.INT, 1),
    Flag(("--pipeline-parallel-size", "-pp"), Kind.INT, 1),
    Flag(("--data-parallel-size", "-dp"), Kind.INT, 1),
    Flag(("--max-num-seqs",), Kind.INT),
    Flag(("--max-num-batched-tokens",), Kind.HUMAN_INT),
    Flag(("--enable-chunked-prefill",), Kind.TOGGLE, True),
    Flag(("--async-scheduling",), Kind.TOGGLE),
    Flag(("--scheduler-cls",)),
    Flag(("--worker-extension-cls",)),
    Flag(("--block-size",), Kind.INT, 16),
    Flag(("--gpu-memory-utilization",), Kind.FLOAT, 0.9),
    Flag(("--kv-cache-memory-bytes",), Kind.HUMAN_INT),
    Flag(("--num-gpu-blocks-override",), Kind.INT),
    Flag(
        ("--kv-cache-dtype",),
        Kind.TEXT,
        "auto",
        ("auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc"),
    ),
    Flag(("--dtype",), Kind.TEXT, "auto", ("auto", "half", "float16", "bfloat16", "float", "float32")),
    Flag(("--quantization", "-q")),
    Flag(("--enable-prefix-caching",), Kind.TOGGLE, True),
    Flag(("--enforce-eager",), Kind.TOGGLE, False),
    Flag(("--cudagraph-capture-sizes",), Kind.INTS),
    Flag(("--max-cudagraph-capture-size",), Kind.INT),
    Flag(("--speculative-config", "-sc"), Kind.JSON),
)
"""Flags that change what the emulator does."""

INERT = (
    *flags_of(
        Kind.TEXT,
        "--model --runner --convert --tokenizer --tokenizer-mode --tokenizer-revision --code-revision --hf-config-path"
        " --hf-token --load-format --download-dir --config-format --generation-config --model-impl --chat-template"
        " --chat-template-content-format --response-role --tool-call-parser --tool-parser-plugin --reasoning-parser"
        " --distributed-executor-backend --data-parallel-address/-dpa --data-parallel-backend/-dpb --worker-cls"
        " --scheduling-policy --prefix-caching-hash-algo --mamba-cache-dtype"
        " --otlp-traces-endpoint --show-hidden-metrics-for-version --uvicorn-log-level --log-config-file --root-path"
        " --ssl-ca-certs --allowed-local-media-path --attention-backend --moe-backend"
        " --kv-offloading-backend --all2all-backend --middleware --master-addr --per-request-spec-decode-metrics",
    ),
    *flags_of(
        Kind.INT,
        "--seed --max-num-queued-reqs --max-logprobs --max-log-len --max-num-partial-prefills"
        " --max-long-partial-prefills --long-prefill-token-threshold --stream-interval"
        " --max-parallel-loading-workers --data-parallel-rank/-dpn"
        " --data-parallel-start-rank/-dpr --data-parallel-size-local/-dpl --data-parallel-rpc-port/-dpp"
        " --decode-context-parallel-size/-dcp --prefill-context-parallel-size/-pcp --nnodes/-n --node-rank/-r"
        " --master-port --api-server-count/-asc --max-loras --max-lora-rank --max-cpu-loras"
        " --h11-max-incomplete-event-size --h11-max-header-count --mamba-block-size",
    ),
    *flags_of(Kind.TEXTS, "--api-key --lora-modules --logits-processors"),
    *flags_of(Kind.HUMAN_INT, "--max-num-queued-tokens"),
    *flags_of(Kind.FLOAT, "--cpu-offload-gb --kv-offloading-size --mm-processor-cache-gb"),
    *flags_of(
        Kind.JSON,
        "--hf-overrides --model-loader-extra-config --compilation-config/-cc --kv-transfer-config --kv-events-config"
        " --ec-transfer-config --additional-config --structured-outputs-config --override-generation-config"
        " --limit-mm-per-prompt --mm-processor-kwargs --media-io-kwargs --eplb-config"
        " --default-chat-template-kwargs --attention-config --kernel-config --profiler-config --allowed-origins"
        " --allowed-methods --allowed-headers --custom-histogram-buckets",
    ),
    *flags_of(
        Kind.TOGGLE,
        "--trust-remote-code --skip-tokenizer-init --enable-prompt-embeds --enable-sleep-mode --disable-sliding-window"
        " --disable-cascade-attn --enable-lora --enable-expert-parallel/-ep --enable-eplb --enable-dbo"
        " --disable-custom-all-reduce --data-parallel-hybrid-lb/-dph --data-parallel-external-lb/-dpe"
        " --language-model-only --calculate-kv-scales --kv-sharing-fast-prefill --disable-hybrid-kv-cache-manager"
        " --kv-cache-metrics --disable-chunked-mm-input --use-tqdm-on-load --enable-log-requests --enable-log-outputs"
        " --aggregate-engine-logging --disable-uvicorn-access-log --enable-request-id-headers"
        " --enable-auto-tool-choice --enable-prompt-tokens-details --enable-force-include-usage"
        " --enable-tokenizer-info-endpoint --return-tokens-as-token-ids --disable-fastapi-docs"
        " --disable-frontend-multiprocessing --allow-credentials --enable-ssl-refresh --fully-sharded-loras"
        " --enable-layerwise-nvtx-tracing --cudagraph-metrics --enable-mfu-metrics --disable-log-stats"
        " --enable-server-load-tracking",
    ),
)
"""Flags that are accepted and change nothing here."""

UNDERSTOOD = (*EFFECTIVE, *INERT)

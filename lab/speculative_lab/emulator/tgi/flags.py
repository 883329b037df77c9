"""Flags of `text-generation-launcher` 3.3 (launcher/src/main.rs), as data. `config` builds the parser from them.

Every flag can also be set by a variable of its name (`--max-batch-size`: MAX_BATCH_SIZE), as clap's `env` does.
"""

from __future__ import annotations

from speculative_lab.emulator.flags import Flag, Kind, flags_of

EFFECTIVE = (
    Flag(("--model-id",), Kind.TEXT, "bigscience/bloom-560m"),
    Flag(("--hostname",), Kind.TEXT, "0.0.0.0"),  # noqa: S104  (TGI's default; a pod is reached from outside)
    Flag(("--port", "-p"), Kind.INT, 3000),
    Flag(("--num-shard",), Kind.INT),
    Flag(
        ("--quantize",),
        Kind.TEXT,
        None,
        ("awq", "compressed-tensors", "eetq", "exl2", "gptq", "marlin", "bitsandbytes", "bitsandbytes-nf4",
         "bitsandbytes-fp4", "fp8"),
    ),
    Flag(("--speculate",), Kind.INT),
    Flag(("--kv-cache-dtype",), Kind.TEXT, None, ("fp8_e4m3fn", "fp8_e5m2")),
    Flag(("--max-concurrent-requests",), Kind.INT, 128),
    Flag(("--max-total-tokens",), Kind.INT),
    Flag(("--max-batch-prefill-tokens",), Kind.INT),
    Flag(("--max-batch-total-tokens",), Kind.INT),
    Flag(("--max-batch-size",), Kind.INT),
    Flag(("--cuda-graphs",)),
    Flag(("--cuda-memory-fraction",), Kind.FLOAT, 1.0),
    Flag(("--graceful-termination-timeout", "-g"), Kind.INT, 90),
)  # fmt: skip
"""Flags that change what the emulator does."""

INERT = (
    *flags_of(
        Kind.TEXT,
        "--api-key --revision --dtype --shard-uds-path --master-addr --huggingface-hub-cache --weights-cache-override"
        " --otlp-endpoint --otlp-service-name --cors-allow-origin --ngrok-authtoken --ngrok-edge"
        " --tokenizer-config-path --lora-adapters --usage-stats --rope-scaling",
    ),
    *flags_of(
        Kind.INT,
        "--max-input-tokens --max-input-length"
        " --validation-workers --max-best-of --max-stop-sequences --max-top-n-tokens --max-waiting-tokens"
        " --prometheus-port --master-port --max-client-batch-size --payload-limit",
    ),
    *flags_of(Kind.FLOAT, "--waiting-served-ratio --rope-factor --watermark-gamma --watermark-delta"),
    *flags_of(
        Kind.SWITCH,
        "--sharded --trust-remote-code --disable-custom-kernels --json-output --ngrok --disable-grammar-support --env"
        " --enable-prefill-logprobs",
    ),
)
"""Flags that are accepted and change nothing here."""

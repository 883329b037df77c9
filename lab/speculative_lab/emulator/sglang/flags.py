"""Flags of `python -m sglang.launch_server` 0.5.23 that the emulator knows, as data. `config` builds the parser.

Names are those of sglang/srt/arg_groups/fields. A flag that is not here is refused as SGLang refuses an unknown one.
"""

from __future__ import annotations

from speculative_lab.emulator.flags import Flag, Kind, flags_of

ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH", "DSPARK")

EFFECTIVE = (
    Flag(("--model-path", "--model")),
    Flag(("--served-model-name",)),
    Flag(("--host",), Kind.TEXT, "127.0.0.1"),
    Flag(("--port",), Kind.INT, 30000),
    Flag(("--tensor-parallel-size", "--tp-size"), Kind.INT, 1),
    Flag(("--context-length",), Kind.HUMAN_INT),
    Flag(("--max-running-requests",), Kind.INT),
    Flag(("--chunked-prefill-size",), Kind.INT, 8192),
    Flag(("--page-size",), Kind.INT, 1),
    Flag(("--mem-fraction-static",), Kind.FLOAT, 0.88),
    Flag(("--max-total-tokens",), Kind.INT),
    Flag(
        ("--kv-cache-dtype",),
        Kind.TEXT,
        "auto",
        ("auto", "fp8_e5m2", "fp8_e4m3", "bf16", "bfloat16", "fp4_e2m1"),
    ),
    Flag(("--quantization",)),
    Flag(("--enable-metrics",), Kind.SWITCH),
    Flag(("--decode-log-interval",), Kind.INT, 40),
    Flag(("--disable-cuda-graph",), Kind.SWITCH),
    Flag(("--disable-cuda-graph-padding",), Kind.SWITCH),
    Flag(("--cuda-graph-max-bs",), Kind.INT),
    Flag(("--cuda-graph-bs",), Kind.INTS),
    Flag(("--speculative-algorithm",), Kind.TEXT, None, ALGORITHMS),
    Flag(("--speculative-draft-model-path", "--speculative-draft-model")),
    Flag(("--speculative-num-steps",), Kind.INT),
    Flag(("--speculative-eagle-topk",), Kind.INT),
    Flag(("--speculative-num-draft-tokens",), Kind.INT),
    Flag(("--speculative-dflash-block-size",), Kind.INT),
    Flag(("--speculative-dspark-block-size",), Kind.INT),
    Flag(("--speculative-adaptive",), Kind.SWITCH),
    Flag(("--speculative-adaptive-config",)),
)
"""Flags that change what the emulator does."""

INERT = (
    *flags_of(
        Kind.TEXT,
        "--api-key --revision --tokenizer-path --tokenizer-mode --load-format --model-impl --dtype"
        " --quantization-param-path --device --attention-backend --prefill-attention-backend"
        " --decode-attention-backend --sampling-backend --grammar-backend --schedule-policy --chat-template"
        " --completion-template --file-storage-path --log-level --log-level-http --reasoning-parser"
        " --tool-call-parser --download-dir --dist-init-addr --json-model-override-args --lora-eviction-policy"
        " --lora-backend --moe-runner-backend --moe-a2a-backend --disaggregation-mode --kv-events-config"
        " --radix-eviction-policy --mm-attention-backend --weight-version --watchdog-timeout"
        " --speculative-draft-model-revision --speculative-draft-load-format --speculative-token-map"
        " --speculative-attention-mode --speculative-draft-attention-backend --speculative-draft-kv-cache-dtype"
        " --speculative-moe-runner-backend --speculative-moe-a2a-backend --speculative-draft-model-quantization"
        " --speculative-ngram-match-type --extra-metric-labels",
    ),
    *flags_of(Kind.TEXTS, "--lora-paths --lora-target-modules --preferred-sampling-params"),
    *flags_of(
        Kind.INT,
        "--pipeline-parallel-size/--pp-size --data-parallel-size/--dp-size --expert-parallel-size/--ep-size/--ep"
        " --max-queued-requests --max-prefill-tokens --stream-interval --random-seed --nnodes --node-rank"
        " --max-lora-rank --max-loras-per-batch --max-loaded-loras --num-continuous-decode-steps --base-gpu-id"
        " --gpu-id-step --tokenizer-worker-num --speculative-draft-window-size --speculative-draft-sink-size"
        " --speculative-ngram-min-bfs-breadth --speculative-ngram-max-bfs-breadth"
        " --speculative-ngram-max-trie-depth --speculative-ngram-capacity --torch-compile-max-bs",
    ),
    *flags_of(
        Kind.FLOAT,
        "--schedule-conservativeness --speculative-accept-threshold-single --speculative-accept-threshold-acc"
        " --cpu-offload-gb --swa-full-tokens-ratio",
    ),
    *flags_of(
        Kind.SWITCH,
        "--trust-remote-code --skip-tokenizer-init --skip-server-warmup --is-embedding --enable-multimodal"
        " --disable-radix-cache --disable-overlap-schedule --enable-mixed-chunk --enable-dp-attention"
        " --enable-dp-lm-head --enable-two-batch-overlap --enable-torch-compile --enable-lora --enable-p2p-check"
        " --enable-memory-saver --enable-hierarchical-cache --enable-multi-layer-eagle --enable-pdmux"
        " --enable-metrics-for-all-schedulers --enable-mfu-metrics --enable-cache-report"
        " --enable-deterministic-inference --disable-custom-all-reduce --disable-chunked-prefix-cache"
        " --enable-priority-scheduling --log-requests --show-time-cost --allow-auto-truncate"
        " --enable-nan-detection --speculative-use-rejection-sampling --speculative-use-block-verification",
    ),
)
"""Flags that are accepted and change nothing here."""

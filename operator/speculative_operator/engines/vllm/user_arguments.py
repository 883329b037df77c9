"""Which of the user's `engine.args` collide with what the operator sets, and the remedy for each. Called by `checks`.

One owner per flag: a flag with a field of its own is refused even while that field is empty, because the operator
reasons with the field's value (batch limits, memory, metrics) and would not see the flag's.
"""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, Mode
from speculative_operator.engines.base import Refusal

_FIELD = "spec.engine.args"
_ALWAYS = "it is always set by the operator"
_SPECULATION = "set spec.speculator and spec.speculation instead"

OWNED: dict[str, str] = {
    "--model": "set spec.verifier.model instead",
    "--served-model-name": "set spec.verifier.servedName instead",
    "--revision": "set spec.verifier.revision instead",
    "--host": _ALWAYS,
    "--port": _ALWAYS,
    "--tensor-parallel-size": "set spec.verifier.tensorParallelSize instead",
    "--pipeline-parallel-size": "set spec.verifier.pipelineParallelSize instead",
    "--data-parallel-size": "set spec.verifier.dataParallelSize instead",
    "--max-model-len": "set spec.verifier.maxModelLen instead",
    "--max-num-seqs": "set spec.verifier.maxNumSeqs instead",
    "--max-num-batched-tokens": "set spec.verifier.maxNumBatchedTokens instead",
    "--enable-expert-parallel": "set spec.verifier.expertParallel instead",
    "--enable-lora": "set spec.verifier.lora instead",
    "--max-loras": "set spec.verifier.lora.maxAdapters instead",
    "--max-lora-rank": "set spec.verifier.lora.maxRank instead",
    "--gpu-memory-utilization": "set spec.verifier.gpuMemoryUtilizationPercent instead",
    "--kv-cache-dtype": "set spec.verifier.kvCacheDtype instead",
    "--quantization": "set spec.verifier.quantization instead",
    "--dtype": "set spec.verifier.dtype instead",
    "--shutdown-timeout": _ALWAYS,
    "--scheduler-cls": "K is changed through it",
    "--speculative-config": _SPECULATION,
    "--spec-method": _SPECULATION,
    "--spec-model": _SPECULATION,
    "--spec-tokens": _SPECULATION,
}
"""Flag -> remedy."""

ALIASES = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-ep": "--enable-expert-parallel",
    "-q": "--quantization",
    "-sc": "--speculative-config",
}
_NO_STATISTICS = "--disable-log-stats"


def refusals(spec: DeploymentSpec) -> Iterator[Refusal]:
    """One refusal per colliding argument, in the order given."""
    arguments = spec.engine.args
    if arguments and not arguments[0].startswith("-"):
        message = f"{_FIELD} begins with {arguments[0]!r}, which is no flag; the model comes from spec.verifier.model"
        yield Refusal(_FIELD, Reason.SPEC_INVALID, message)
    for argument in arguments:
        flag = flag_of(argument)
        if flag in OWNED:
            message = f"{_FIELD} repeats {flag} ({argument!r}): {OWNED[flag]}; remove it from engine.args"
            yield Refusal(_FIELD, Reason.SPEC_INVALID, message)
        elif flag == _NO_STATISTICS and spec.speculation.mode in (Mode.AUTO, Mode.RECOMMEND):
            message = (
                f"{_FIELD} has {flag}: mode {spec.speculation.mode} reads the metrics that it turns off; "
                "remove it, or set spec.speculation.mode: Static"
            )
            yield Refusal(_FIELD, Reason.SPEC_INVALID, message)


def flag_of(argument: str) -> str:
    """The flag in its long form with dashes; "" for a value.

    `--max_num_seqs=4`, `-tp=2`, `-tp2`, `--speculative-config.method` and unambiguous beginnings such as
    `--max-num-se` all name the flag that the engine's parser would take them for.
    """
    if not argument.startswith("-"):
        return ""
    name = argument.partition("=")[0]
    if not name.startswith("--"):
        return next((flag for short, flag in ALIASES.items() if _is_short(name, short)), name)
    name = name.partition(".")[0].replace("_", "-")
    meant = [flag for flag in OWNED if flag.startswith(name)]
    return meant[0] if name not in OWNED and len(name) > 2 and len(meant) == 1 else name


def _is_short(name: str, short: str) -> bool:
    return name == short or (name.startswith(short) and name[len(short) :].isdigit())

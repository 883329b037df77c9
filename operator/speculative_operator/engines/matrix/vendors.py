"""Rows that say what speculation an engine keeps on each vendor's accelerators; asked before the engine's own rows.

Some vendors run the engine itself, others a plug-in with a model runner of its own: that one drafts with the K it was
started with, so a change of K is a rollout there. A method that is not in a row was found neither in the plug-in's
source nor in its documentation, and is refused. Images are told in `engines.images`.
"""

from __future__ import annotations

from dataclasses import dataclass

from speculative_operator.domain.platform import Vendor
from speculative_operator.domain.spec import EngineType, Method
from speculative_operator.domain.table import Actuator
from speculative_operator.engines.matrix.cell import Cell, Variant, Version


@dataclass(frozen=True, slots=True)
class Platform:
    """One engine on one vendor's accelerators, in a range of the engine's releases."""

    engine: EngineType
    vendor: Vendor
    methods: frozenset[Method]
    source: str
    """Repository, file and release from which the row was read."""
    since: Version = (0, 0, 0)
    before: Version | None = None
    plugin: str = ""
    """Plug-in that runs the engine on these accelerators; empty where the engine needs none."""
    newest: Version | None = None
    """Newest release of the engine that the plug-in is known to exist for."""
    actuator: Actuator = Actuator.LIVE
    """The gentlest actuator on these accelerators, whatever the engine has elsewhere."""
    runner: str = ""
    """The only model runner; empty where the engine's rows tell."""
    variants: frozenset[Variant] = frozenset(Variant)
    pipeline: bool = True
    """True when pipeline parallelism works."""
    lora: bool = True
    remedy: str = ""
    """What to do for a method that is not in `methods`, a clause."""

    def holds(self, version: Version) -> bool:
        """True when the row speaks of the engine's release `version`."""
        return self.since <= version and (self.before is None or version < self.before)


_ALL = frozenset(Method)
_EAGLES = frozenset({Method.EAGLE, Method.EAGLE3})
_PLAIN = frozenset({Variant.PLAIN})
_VLLM, _SGLANG, _TRT, _TGI = EngineType.VLLM, EngineType.SGLANG, EngineType.TENSORRT_LLM, EngineType.TGI
_NO_TRITON = frozenset({Method.NGRAM_GPU, Method.DSPARK})

_SHARE = "taken as a share of an NVIDIA GPU under another resource name"
_TGI_DOCS = "huggingface/text-generation-inference docs/source/"

GENTLEST = (Actuator.LIVE, Actuator.TABLE, Actuator.RESTART, Actuator.NONE)


def _without(engine: EngineType, vendor: Vendor, where: str, source: str) -> Platform:
    """The row of accelerators on which an engine serves without a speculator."""
    other = "" if engine is _TGI else ", or use engine.type: vLLM"
    remedy = f"no speculation is documented on {where}; remove spec.speculator{other}"
    return Platform(engine, vendor, frozenset(), source, remedy=remedy)


PLATFORMS: tuple[Platform, ...] = (
    Platform(_VLLM, Vendor.NVIDIA, _ALL, "vLLM 0.32.0 docs/features/README.md"),
    Platform(_VLLM, Vendor.AMD, _ALL, "vLLM docs/features/README.md, feature x hardware: speculation works on AMD"),
    Platform(
        _VLLM, Vendor.INTEL_GPU, _ALL,
        "vLLM docs/features/README.md, feature x hardware: speculation works on Intel GPUs, CUDA graphs do not",
    ),
    Platform(
        _VLLM, Vendor.CPU, _ALL - _NO_TRITON, "vLLM 0.32.0 v1/worker/cpu_model_runner.py and platforms/cpu.py",
        since=(0, 32, 0), runner="V1",
        remedy="it needs Triton, which CPU builds lack; use eagle3, draft_model or ngram",
    ),
    Platform(
        _VLLM, Vendor.CPU, frozenset(), "vLLM docs/features/README.md, feature x hardware: no speculation on CPUs",
        before=(0, 32, 0), runner="V1", remedy="releases before 0.32.0 are not known to speculate on CPUs; use 0.32.0",
    ),
    Platform(
        _VLLM, Vendor.GAUDI, _EAGLES | {Method.NGRAM, Method.MTP},
        "vllm-project/vllm-gaudi 0.26.0 v1/worker/hpu_model_runner.py; experimental by its docs/general/faq.md",
        since=(0, 11, 2), plugin="vllm-gaudi", newest=(0, 26, 0), actuator=Actuator.RESTART, runner="V1",
        variants=_PLAIN, remedy="vllm-gaudi has ngram, eagle, eagle3 and mtp",
    ),
    Platform(
        _VLLM, Vendor.NEURON, frozenset({Method.EAGLE}), "vllm-project/vllm-neuron 0.2.0 README.md (vLLM 0.11)",
        since=(0, 11, 0), before=(0, 17, 0), plugin="vllm-neuron with NxD Inference", actuator=Actuator.RESTART,
        runner="V1", variants=_PLAIN, pipeline=False,
        remedy="vllm-neuron with NxD Inference has eagle only; use eagle, or engine.version 0.24.0 for eagle3",
    ),
    Platform(
        _VLLM, Vendor.NEURON, frozenset({Method.EAGLE3}),
        "AWS Neuron documentation 2.32, vLLM Neuron plug-in 0.24.0.1.1.0 (beta): EAGLE3, also with parallel drafting",
        since=(0, 21, 0), plugin="vllm-neuron", newest=(0, 24, 0), actuator=Actuator.RESTART, runner="V1",
        variants=frozenset({Variant.PLAIN, Variant.PARALLEL}), pipeline=False, lora=False,
        remedy="vllm-neuron has eagle3 only",
    ),
    Platform(
        _VLLM, Vendor.TPU, frozenset({Method.EAGLE3, Method.NGRAM}),
        "vllm-project/tpu-inference README.md, feature support: Eagle3 and Ngram tested", since=(0, 11, 1),
        before=(0, 25, 0), plugin="tpu-inference", actuator=Actuator.RESTART, runner="V1", variants=_PLAIN,
        remedy="tpu-inference before 0.25.0 has ngram and eagle3",
    ),
    Platform(
        _VLLM, Vendor.TPU, frozenset({Method.EAGLE3, Method.NGRAM, Method.DFLASH}),
        "vllm-project/tpu-inference 0.27.0 runner/tpu_runner.py; README.md: Eagle3, Ngram and DFlash tested",
        since=(0, 25, 0), plugin="tpu-inference", newest=(0, 32, 0), actuator=Actuator.RESTART, runner="V1",
        variants=_PLAIN, remedy="tpu-inference has ngram, eagle3 and dflash",
    ),
    Platform(_VLLM, Vendor.OTHER, _ALL, _SHARE),
    Platform(
        _SGLANG, Vendor.NVIDIA, _ALL, "SGLang docs/advanced_features/speculative_decoding.md", actuator=Actuator.TABLE,
    ),
    Platform(
        _SGLANG, Vendor.AMD, _EAGLES | {Method.MTP, Method.DRAFT_MODEL},
        "SGLang docs/advanced_features/speculative_decoding.md: NGRAM is for CUDA only", actuator=Actuator.TABLE,
        remedy="on AMD only eagle, eagle3, mtp and draft_model are documented",
    ),
    _without(_SGLANG, Vendor.INTEL_GPU, "Intel GPUs", "SGLang docs/platforms/xpu.md, which names no speculation"),
    _without(_SGLANG, Vendor.CPU, "CPUs", "SGLang docs/platforms/cpu_server.md, which names no speculation"),
    Platform(_SGLANG, Vendor.OTHER, _ALL, _SHARE, actuator=Actuator.TABLE),
    Platform(_TRT, Vendor.NVIDIA, _ALL, "NVIDIA/TensorRT-LLM README.md", actuator=Actuator.TABLE),
    Platform(_TRT, Vendor.OTHER, _ALL, _SHARE, actuator=Actuator.TABLE),
    Platform(_TGI, Vendor.NVIDIA, _ALL, f"{_TGI_DOCS}conceptual/speculation.md", actuator=Actuator.RESTART),
    Platform(_TGI, Vendor.AMD, _ALL, f"{_TGI_DOCS}installation_amd.md", actuator=Actuator.RESTART),
    Platform(_TGI, Vendor.OTHER, _ALL, _SHARE, actuator=Actuator.RESTART),
    _without(_TGI, Vendor.GAUDI, "Gaudi", f"{_TGI_DOCS}backends/gaudi.mdx"),
    _without(_TGI, Vendor.INTEL_GPU, "Intel GPUs", f"{_TGI_DOCS}installation_intel.md"),
    _without(_TGI, Vendor.CPU, "CPUs", f"{_TGI_DOCS}installation_intel.md"),
)  # fmt: skip
"""At most one row speaks of an engine, a vendor and a release. Where none does, the engine does not run there."""


def platform_of(engine: EngineType, vendor: Vendor, version: Version) -> Platform | None:
    """The row for the engine's release on the vendor's accelerators; None where it does not run."""
    found = (row for row in PLATFORMS if row.engine is engine and row.vendor is vendor and row.holds(version))
    return next(found, None)


def vendors_of(engine: EngineType) -> tuple[Vendor, ...]:
    """Vendors whose accelerators the engine runs on in some release."""
    return tuple(vendor for vendor in Vendor if any(row.engine is engine and row.vendor is vendor for row in PLATFORMS))


def best_actuator(cell: Cell | None, platform: Platform | None) -> Actuator:
    """The gentlest way to change K: Live, else Table, else Restart, which is also the answer where no row serves."""
    if cell is None:
        return Actuator.RESTART
    return max(cell.actuator, platform.actuator if platform is not None else Actuator.RESTART, key=GENTLEST.index)

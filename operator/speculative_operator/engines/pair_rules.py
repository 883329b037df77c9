"""What the judge of pairs must know of an engine's release: the capability matrix and the adapters, asked for one spec.

Called by reconcile and by `speculative check`. What a release reads is told only up to the release whose source was
read: a later one may have learned more.
"""

from __future__ import annotations

from dataclasses import replace

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, EngineType, Method
from speculative_operator.engines.matrix.cell import Variant
from speculative_operator.engines.matrix.version import Version, parse
from speculative_operator.engines.registry import engine_for
from speculative_operator.engines.vllm.forms import FORMS
from speculative_operator.pairing.rules import EngineRules

READ_UP_TO: Version = (0, 32, 0)
"""vLLM release whose source the lists below were read from."""

RENAMES = (
    ("eagle-", Method.EAGLE),
    ("eagle3", Method.EAGLE3),
    ("dflash", Method.DFLASH),
    ("dspark", Method.DSPARK),
)
"""vLLM 0.32.0 config/speculative.py, __post_init__: parts of names, in the order in which they are looked for."""
SPECULATORS_TYPES = frozenset({"eagle3", "peagle", "dflash", "dflash2", "dspark"})
"""vLLM 0.32.0 transformers_utils/configs/speculators/algos.py."""
MTP_TYPES = frozenset(
    {
        "bailing_hybrid", "bailing_moe_v3", "bailing_moe_v3_vl", "deepseek_mtp", "deepseek_v3", "deepseek_v32",
        "deepseek_v4", "dots3_note", "ernie4_5_moe", "exaone4_5", "exaone_moe", "gemma4_assistant",
        "gemma4_unified_assistant", "glm4_moe", "glm4_moe_lite", "glm5_next", "glm_moe_dsa", "glm_ocr", "hy_v3",
        "hy_v4", "inkling_mm_model", "inkling_model", "intern_s2_preview", "interns2_mobius", "kimi_k3",
        "longcat_flash", "mimo", "mimo_v2", "mimo_v2_flash", "mimo_v2_omni", "minimax_m3_vl", "mistral_large_3",
        "nemotron_h", "nemotron_h_puzzle", "pangu_ultra_moe", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text",
        "qwen3_5_text", "qwen3_next", "qwen4_exp", "qwen4_exp_text", "step3p5", "step3p7",
    }
)  # fmt: skip
"""vLLM 0.32.0 config/speculative.py, hf_config_override: `model_type` of what it rewrites into modules. For the few
that it knows by architecture the type is that of the family's config.json."""
_NO_INNER_STATES = """
    AXK1 BailingMoe BailingMoeV2 BailingMoeV2_5 BailingMoeV3 Bloom Cohere Cohere2 Dbrx DeciLM DeepseekOCR
    DeepseekOCR2 DeepseekVLV2 DotsOCR Ernie4_5_Moe Exaone Exaone4 ExaoneMoE ExaoneMoe Falcon FalconH1 FalconMamba
    Gemma Gemma2 Gemma3 Gemma3n Glm4 Glm4Moe Glm4MoeLite GLM4V GPTJ GraniteMoe GraniteMoeHybrid GraniteMoeShared
    GraniteMoeSWA HCXVisionV2 HrmText HyperCLOVAX HYV3 HYV4 InternLM2 IQuestLoopCoder Jamba Lfm2 Lfm2Moe LongcatFlash
    LongcatFlashNgram Mamba Mamba2 Mixtral Molmo Moondream3 MoonshotKimia Nemotron Olmoe OlmoHybrid OPT Orion Ovis2_6
    Ovis2_6_Moe PanguEmbedded PanguProMoEV2 PanguUltraMoE Param2MoE Phi3V Phi4MM PhiMoE Qwen2Moe Qwen4Exp Rnj1 Solar
    StableLm Step3p5 Step3Text UnlimitedOCR Zamba2
"""
NO_INNER_STATES = frozenset(f"{name}ForCausalLM" for name in _NO_INNER_STATES.split())
"""Text models of vLLM 0.32.0 model_executor/models/registry.py whose classes neither inherit SupportsEagle3 nor name
auxiliary hidden states; for the others "Model does not support EAGLE3 interface" is not known to come."""
SAME_SIZE_SINCE: Version = (0, 14, 0)
"""draft_model came back to vLLM with the check of `vocab_size` (vllm#24322)."""

SGLANG_READ: Version = (0, 5, 23)
"""SGLang release whose speculative/standalone_worker_v2.py refuses a draft model of another `vocab_size`."""


def rules_of(spec: DeploymentSpec) -> EngineRules:
    """The rules of the engine and release that `spec` names. Never raises for a spec that has passed the API."""
    engine = engine_for(spec)
    refused = tuple(
        (one.field, one.message) for one in engine.refusals(spec) if one.reason is not Reason.UNSUPPORTED_SOURCE
    )
    k = max(engine.knobs(spec).ks, default=0) if spec.speculates else 0
    plain = EngineRules(spec.engine.type, spec.engine.version, refused, k or None)
    version = parse(spec.engine.version)
    if spec.engine.type is EngineType.SGLANG:
        return replace(plain, same_vocabulary_size=version == SGLANG_READ)
    if spec.engine.type is not EngineType.VLLM or version is None:
        return plain
    return _vllm(plain, version)


def _vllm(plain: EngineRules, version: Version) -> EngineRules:
    read = version <= READ_UP_TO
    return EngineRules(
        engine=plain.engine,
        version=plain.version,
        refusals=plain.refusals,
        largest_k=plain.largest_k,
        same_vocabulary_size=version >= SAME_SIZE_SINCE,
        whole_heads=read,
        heterogeneous=version >= _heterogeneous_since(),
        renames=RENAMES,
        speculators_types=SPECULATORS_TYPES if read else None,
        mtp_types=MTP_TYPES if read else None,
        no_inner_states=NO_INNER_STATES if read else frozenset(),
        divisible_modules=True,
        divisible_heads=True,
        parallel_token=True,
        stretches_positions=version >= READ_UP_TO,
        checks_lengths=True,
        checks_quantization=True,
    )


def _heterogeneous_since() -> Version:
    """The first vLLM release in the matrix whose speculator may have another vocabulary."""
    return min(form.since for form in FORMS if form.variant is Variant.HETEROGENEOUS and not form.refused)

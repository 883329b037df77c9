"""What is known of a model: its pinned version and the facts of its files, and its shape beside an accelerator.

`weights.inspect` reads pins and facts from the files without loading them, in a Job or on a user's machine; `pairing`
judges them, and they travel in a Job's result and the operator's notes. All of it is plain data with a JSON form, and
what a judge can derive is left out. Shapes are what `physics` needs to price a step and `pairing` to judge memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from speculative_operator.domain.spec import Method, ModelSource, Scheme

NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"),
    "head_dim": ("head_dim", "kv_channels", "attention_head_dim"),
    "inner": ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"),
    "vocabulary": ("vocab_size", "padded_vocab_size"),
    "experts": ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"),
    "experts_per_token": (
        "num_experts_per_tok", "num_experts_per_token", "top_k_experts", "experts_per_token", "moe_topk", "moe_k",
    ),
    "expert_inner": ("moe_intermediate_size", "expert_ffn_hidden_size"),
    "expert_hidden": ("routed_expert_hidden_size", "moe_latent_size"),
    "dense_inner": ("intermediate_size_mlp", "dense_intermediate_size"),
    "shared_experts": ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"),
    "shared_inner": ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"),
    "first_dense": ("first_k_dense_replace", "moe_layer_start_index"),
    "max_position": ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len"),
    "window": ("sliding_window", "sliding_window_size", "attention_chunk_size"),
    "draft_layers": ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "mtp_num_layers"),
    "state_heads": ("mamba_num_heads", "mamba_n_heads"),
    "state_head_dim": ("mamba_head_dim", "mamba_d_head"),
    "state_size": ("ssm_state_size", "mamba_d_state"),
    "state_groups": ("n_groups", "mamba_n_groups"),
    "state_kernel": ("conv_kernel", "mamba_d_conv"),
}  # fmt: skip
"""What is read of `config.json` -> its keys, as families spell them (Hugging Face Transformers 5)."""
_OTHERS = """
    architectures attn_layer_offset attn_layer_period attn_output_gate aux_hidden_state_layer_ids backbone_hidden_size
    base_model_name_or_path block_configs block_size compress_ratios decoder_sparse_step dflash_config draft_vocab_size
    dspark_block_size dspark_noise_token_id dspark_target_layer_ids dtype eagle_aux_hidden_state_layer_ids eagle_config
    emb_dim enable_moe_block factor full_attention_interval full_attn_layers global_head_dim hc_count hc_mult hidden_act
    hybrid_layer_pattern hybrid_override_pattern index_head_dim index_n_heads interleave_moe_layer_step
    kv_cache_quant_algo kv_lora_rank language_config layer_types layers_block_type linear_attn_config
    linear_conv_kernel_dim linear_key_head_dim linear_num_key_heads linear_num_value_heads linear_value_head_dim
    llm_config mamba_ssm_cache_dtype mamba_ssm_dtype mask_token_id max_window_layers medusa_num_heads mlp_hidden_act
    mlp_only_layers model model_type moe_layer_freq mtp_config n_predict name_or_path num_aux_hidden_states
    num_global_key_value_heads num_heads num_kv_shared_layers num_target_layers o_groups o_lora_rank
    original_max_position_embeddings pard_token proposal_methods ptd_token_id q_lora_rank qk_nope_head_dim
    qk_rope_head_dim quant_method quantization_config rope_parameters rope_scaling rope_type sample_from_anchor
    short_conv_kernel_size sliding_window_pattern speculative_tokens speculators_config speculators_model_type
    swa_head_dim swa_num_key_value_heads swa_v_head_dim target_hidden_size target_layer_ids text_config thinker_config
    tie_word_embeddings torch_dtype transformer_layer_config truncated_vocab_size type use_aux_hidden_state
    use_sliding_window v_head_dim verifier
"""
CONFIG_KEYS = frozenset(_OTHERS.split()).union(*NAMES.values())
"""Keys of `config.json` that are kept, at any depth: those that `pairing` reads."""


@dataclass(frozen=True, slots=True)
class Pin:
    """One immutable version of a model."""

    scheme: Scheme
    location: str
    """As in the URI: `organisation/model`, `registry/repository`, `bucket/prefix`, `claim/path`; no tag, no digest."""
    asked: str
    """Revision, tag or digest that was asked for; empty for the source's default."""
    resolved: str
    """hf: commit. oci: `sha256:...` of the manifest. s3, pvc: `sha256:...` over names, sizes and checksums of all files
    (docs/pairs.md tells the recipe)."""

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits: the folder of this version in a cache. The same files by another way of asking
        have the same key."""
        return hashlib.sha256(f"{self.scheme}://{self.location}@{self.resolved}".encode()).hexdigest()[:16]

    @property
    def source(self) -> ModelSource:
        """The model source for the engine, at the resolved version."""
        return ModelSource(self.scheme, self.location, self.resolved)


def file_of_data_set(source: ModelSource) -> str:
    """The one file that hf://datasets/ORGANISATION/NAME/FILE means, by its path there; empty for a model."""
    first, *parts = source.location.split("/", 3)
    return parts[2] if source.scheme is Scheme.HF and first == "datasets" and len(parts) == 3 else ""


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """Facts of `tokenizer.json` and `tokenizer_config.json`, or of the file that a model has in place of the former."""

    kind: str = ""
    """`BPE`, `Unigram`, `WordPiece`; `sentencepiece`, `tiktoken`, `tekken`; empty: there is no tokenizer."""
    tokens: int = 0
    """Entries of the vocabulary, added tokens included; 0 where not read."""
    vocabulary_hash: str = ""
    """Sixteen hexadecimal digits over (token, id) sorted by id, added tokens left out; of `sentencepiece`, `tiktoken`
    and `tekken` over the whole file; empty where not read."""
    added_hash: str = ""
    """Sixteen hexadecimal digits over the added tokens alone."""
    special: Mapping[str, str] = field(default_factory=dict)
    """`bos_token`, `eos_token`, `pad_token`, `unk_token` -> text."""
    chat_template_hash: str = ""
    """Sixteen hexadecimal digits of the template's text; empty where there is none."""


@dataclass(frozen=True, slots=True)
class WeightFacts:
    """Facts of the headers of all safetensors files; of other formats only sizes."""

    files: int = 0
    bytes: int = 0
    """Bytes of all files that hold weights."""
    parameters: Mapping[str, int] = field(default_factory=dict)
    """safetensors dtype (`BF16`, `F8_E4M3`, `U8`, `I32`, ...) -> elements."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of the few tensors that judging looks at, by full name: `*embed_tokens.weight`, `*lm_head.weight`,
    `*fc.weight`, `*d2t`, `*t2d`, `*norm.weight` outside layers, the first of each `medusa_head*`, `*mtp*`,
    `*eh_proj*`."""
    layers: int = 0
    """Largest index in `layers.N.` (or `h.N.`) plus one."""
    format: str = "safetensors"
    """`safetensors`, `bin`, `gguf`, or empty where nothing was found."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Facts of one model from its small files and headers."""

    pin: Pin
    config: Mapping[str, Any] = field(default_factory=dict)
    """`config.json` cut to CONFIG_KEYS, nested ones included; JSON values."""
    tokenizer: TokenizerFacts = field(default_factory=TokenizerFacts)
    weights: WeightFacts = field(default_factory=WeightFacts)
    base_models: tuple[str, ...] = ()
    """`base_model` of the model card's metadata: what it was quantized, tuned or trained from."""
    relation: str = ""
    """`base_model_relation` of the card: `quantized`, `finetune`, `adapter`, `merge`, or empty."""

    def to_json(self) -> dict[str, Any]:
        """The facts as plain JSON values, without empty ones."""
        return {key: value for key, value in asdict(self).items() if value not in ({}, (), "", None)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelFacts:
        """Facts from the JSON of `to_json`. Raises ValueError, KeyError or TypeError for any other data."""
        pin, tokenizer, weights = data["pin"], data.get("tokenizer") or {}, dict(data.get("weights") or {})
        shapes = {str(name): tuple(int(side) for side in shape) for name, shape in (weights.pop("shapes", {})).items()}
        return cls(
            pin=Pin(Scheme(pin["scheme"]), str(pin["location"]), str(pin["asked"]), str(pin["resolved"])),
            config=dict(data.get("config") or {}),
            tokenizer=TokenizerFacts(**_fields_of(TokenizerFacts, tokenizer)),
            weights=WeightFacts(**_fields_of(WeightFacts, weights), shapes=shapes),
            base_models=tuple(str(name) for name in data.get("base_models") or ()),
            relation=str(data.get("relation") or ""),
        )


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A transformer as the step-time model sees it. Counts, not bytes, unless said."""

    name: str
    parameters: float
    """All weights that lie in accelerator memory."""
    active_parameters: float
    """Weights that one token passes through: equal to `parameters` for dense models."""
    layers: int
    hidden_size: int
    kv_heads: int
    head_dim: int
    bytes_per_parameter: float = 2.0
    kv_bytes_per_value: float = 2.0
    experts: int = 0
    experts_per_token: int = 0
    max_position: int = 0

    @property
    def weight_bytes(self) -> float:
        return self.parameters * self.bytes_per_parameter

    @property
    def kv_bytes_per_token(self) -> float:
        """Key and value of every layer for one token, in bytes."""
        return 2.0 * self.layers * self.kv_heads * self.head_dim * self.kv_bytes_per_value


@dataclass(frozen=True, slots=True)
class Accelerator:
    """Dense peak rates of one accelerator."""

    name: str
    bf16_flops: float
    """FLOP/s, dense."""
    fp8_flops: float
    """FLOP/s, dense; equal to `bf16_flops` where 8-bit brings no speed."""
    memory_bytes: float
    memory_bandwidth: float
    """bytes/s"""
    source: str = ""
    whole: str = ""
    """Name of the accelerator of which this is a slice; empty: it is whole."""


@dataclass(frozen=True, slots=True)
class PairFacts:
    """Facts of an object's hardware and models before its first run. Every part may be unknown."""

    verifier: ModelShape | None = None
    speculator: ModelShape | None = None
    accelerator: Accelerator | None = None
    accelerators: int = 1
    """Accelerators that share one step (tensor parallel ranks)."""
    kv_capacity_tokens: int | None = None
    kv_capacity_tokens_without_speculator: int | None = None
    method: Method | None = None
    """How drafts are made; None when unknown (then told from the knobs and the speculator's shape)."""


def _fields_of(kind: type[Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `kind` in `data`; others are dropped, since a newer Job may tell more."""
    names = {one.name for one in fields(kind)}
    return {name: value for name, value in data.items() if name in names}

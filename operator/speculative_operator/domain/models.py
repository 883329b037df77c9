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


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """Facts of `tokenizer.json` and `tokenizer_config.json`, or of the file that a model has in place of the former."""

    kind: str = ""
    """`BPE`, `Unigram`, `WordPiece`; `sentencepiece`, `tiktoken`, `tekken`; empty: there is no tokenizer."""
    tokens: int = 0
    """Entries of the vocabulary, added tokens included; 0 where not read."""
    vocabulary_hash: str = ""
    """Sixteen hexadecimal digits over (token, id) sorted by id, added tokens left out; empty where not read."""
    added_hash: str = ""
    """Sixteen hexadecimal digits over the added tokens alone."""
    special: Mapping[str, str] = field(default_factory=dict)
    """`bos_token`, `eos_token`, `pad_token`, `unk_token` -> text."""
    chat_template_hash: str = ""
    """Sixteen hexadecimal digits of the template's text; empty where there is none."""

    @property
    def of_file(self) -> bool:
        """True where `vocabulary_hash` is that of a file as it is, which compares with no other kind of hash."""
        return self.kind in ("sentencepiece", "tiktoken", "tekken")


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
    """`config.json` cut to the keys of `config_keys.CONFIG_KEYS`, nested ones included; JSON values."""
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

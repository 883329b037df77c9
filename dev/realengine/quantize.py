"""Quantize a small model as llm-compressor does, with the library that llm-compressor writes checkpoints with.

Run by the engine's interpreter, which has that library (`compressed-tensors`): `quantize.py W8A8 SOURCE TARGET`.
Weights are rounded to nearest with one scale for each row, activations are scaled while the engine runs, and the head
stays as it is: llm-compressor's QuantizationModifier without calibration. Called by tests/vllm/test_quantized.py.
"""
# mypy: disable-error-code="import-not-found,unused-ignore,import-untyped"

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.quantization import (
    QuantizationConfig,
    QuantizationStatus,
    apply_quantization_config,
    is_preset_scheme,
    preset_name_to_scheme,
)
from compressed_tensors.quantization.utils import calculate_qparams
from transformers import AutoModelForCausalLM

BESIDE = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def quantize(scheme: str, source: Path, target: Path) -> None:
    """Write `source` to `target` with the linear layers quantized by a preset such as W8A8 or FP8_DYNAMIC."""
    model = AutoModelForCausalLM.from_pretrained(source, dtype="float32")
    groups = {"group_0": preset_name_to_scheme(scheme, ["Linear"])}
    apply_quantization_config(model, QuantizationConfig(config_groups=groups, ignore=["lm_head"]))
    for module in model.modules():
        asked = getattr(getattr(module, "quantization_scheme", None), "weights", None)
        if asked is None:
            continue
        lowest, highest = module.weight.aminmax(dim=-1, keepdim=True)
        scale, _ = calculate_qparams(lowest, highest, asked)
        module.weight_scale.data.copy_(scale)
        module.quantization_status = QuantizationStatus.FROZEN
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(target)
    compressor.update_config(str(target))
    for name in BESIDE:
        if (source / name).exists():
            shutil.copy(source / name, target / name)


if __name__ == "__main__":
    scheme, source, target = sys.argv[1:]
    if not is_preset_scheme(scheme):
        sys.exit(f"{scheme} is no preset of compressed-tensors")
    quantize(scheme, Path(source), Path(target))

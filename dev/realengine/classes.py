"""Have vLLM look at the classes of the small models once, and keep what it finds. Run by the engine's interpreter.

vLLM imports every model class in an extra process before it uses it, to learn what it can do, and keeps the answer in
its cache folder. A pod's cache folder is empty, so each start would pay for it: two imports of torch. `install` runs
this with VLLM_CACHE_ROOT in the environment itself; `image` copies the answers into the pod's folder.
"""

from __future__ import annotations

NAMES = ("LlamaForCausalLM", "LlamaForCausalLMEagle3")

if __name__ == "__main__":
    from vllm.model_executor.models.registry import (  # type: ignore[import-not-found]  # only in the engine's
        ModelRegistry,
    )

    for name in NAMES:
        ModelRegistry.models[name].inspect_model_cls()

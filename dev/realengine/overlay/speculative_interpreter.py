"""Has vLLM's V2 model runner run on a CPU: its kernels run in Triton's own interpreter. Tests only.

Laid into the real engine's environment by `realengine.install`, with a `.pth` file that imports it whenever Python
starts there. It acts where REALENGINE_TRITON names the folder with Triton, which `realengine.serving` sets together
with TRITON_INTERPRET; without Triton vLLM for CPUs has the V1 runner alone, and with Triton but without a backend
neither works. What is missing for a CPU is a backend that says which device there is: the interpreter asks nothing
else of it.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

FOLDER = "REALENGINE_TRITON"
KERNELS = "vllm.v1.sample.ops.topk_topp_triton"


def register(folder: str) -> None:
    """Puts Triton on the path, with a backend for the CPU. Every other process of the engine inherits the variable."""
    sys.path.append(folder)
    from triton import backends, runtime  # type: ignore[import-not-found]
    from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found]
    from triton.backends.driver import DriverBase  # type: ignore[import-not-found]

    class Driver(DriverBase):  # type: ignore[misc]
        """What Triton asks of a device before it interprets a kernel."""

        def __init__(self) -> None:
            pass

        @staticmethod
        def is_active() -> bool:
            return True

        def map_python_to_cpp_type(self, ty: str) -> str:
            return ty

        def get_current_target(self) -> Any:
            return GPUTarget("cpu", 0, 1)

        def get_active_torch_device(self) -> Any:
            import torch  # type: ignore[import-not-found]

            return torch.device("cpu")

        def get_benchmarker(self) -> Any:
            raise NotImplementedError("no kernel is tuned in the interpreter")

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int | None = None) -> int:
            return 0

        def get_device_interface(self) -> Any:
            import torch

            return torch.cpu

    backends.backends["cpu"] = SimpleNamespace(driver=Driver, compiler=None)
    runtime.driver.set_active(Driver())


def sample_by_torch() -> None:
    """Stands in for vLLM's kernels of top-k and top-p, whose launch the interpreter cannot carry out: vLLM's own torch
    functions do their work, as they do on a CPU without Triton."""

    def by_torch(logits: Any, k: Any, p: Any) -> Any:
        from vllm.v1.sample.ops import topk_topp_sampler  # type: ignore[import-not-found]

        return topk_topp_sampler.apply_top_k_top_p_pytorch(logits, k, p, allow_cpu_sync=True)

    def kernel(name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)

    stand_in: Any = ModuleType(KERNELS)
    stand_in.apply_top_k_top_p_triton, stand_in.__getattr__ = by_torch, kernel
    sys.modules[KERNELS] = stand_in


if os.environ.get(FOLDER):
    register(os.environ[FOLDER])
    sample_by_torch()

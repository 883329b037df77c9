"""The commands that engine images have on PATH, leading to the emulators: for manifests that name a command.

SGLang and TensorRT-LLM are started by `python3 -m sglang.launch_server` and `trtllm-serve`, and vLLM in pods of KServe
by `python3 -m vllm.entrypoints.openai.api_server`; no image has an entry point that could stand in for these. A node
that runs local programs in the role of images (the development cluster) lays these commands into a folder and puts it
first in PATH and PYTHONPATH.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import speculative_lab
import speculative_operator

_MODULES = {
    "sglang/__init__.py": '"""Stands in for SGLang."""\n',
    "sglang/launch_server.py": (
        "import sys\n\nfrom speculative_lab.emulator.sglang import main\n\nsys.exit(main(sys.argv[1:]))\n"
    ),
}
_API_SERVER = """if [ "$1 $2" = "-m vllm.entrypoints.openai.api_server" ]; then
  shift 2
  exec {python} -m speculative_lab.emulator serve "$@"
fi
"""
"""In the role of vLLM's API server: as a script, because pods set PYTHONPATH to the plug-in's folder."""
_COMMANDS = {
    "python3": "",
    "python": "",
    "trtllm-serve": "-m speculative_lab.emulator.tensorrt_llm ",
}


def lay(folder: Path, python: str = sys.executable) -> Mapping[str, str]:
    """Write commands and modules below `folder`; the variables with which a container finds them.

    `python` is the interpreter that has what the packages need.
    """
    for name, text in _MODULES.items():
        path = folder / "modules" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    commands = folder / "bin"
    commands.mkdir(exist_ok=True)
    for name, words in _COMMANDS.items():
        path = commands / name
        first = _API_SERVER.format(python=python) if name == "python3" else ""
        path.write_text(f'#!/bin/sh\n{first}exec {python} {words}"$@"\n')
        path.chmod(0o755)  # run by whatever user the pod has
    packages = (speculative_lab.__file__, speculative_operator.__file__)
    roots = dict.fromkeys(str(Path(package).parents[1]) for package in packages)
    return {"PATH": f"{commands}:/usr/bin:/bin", "PYTHONPATH": ":".join([str(folder / "modules"), *roots])}

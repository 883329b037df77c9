"""What the node runs where the image `vllm/vllm-openai` would run `vllm serve`: that, in the engine's own environment.

A file of its own, run by the engine's interpreter without the rest of this package. It changes one argument, and only
where a test asks for it by REALENGINE_SYNTHETIC_RATES: drafts are then accepted at these rates by position (JSON list,
one per K that can be drafted), whatever they say. The operator renders no such test aid, so it is added here.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

KEPT = "vllm-cache"
"""Folder of the engine's environment with what `classes` found."""
RATES = "REALENGINE_SYNTHETIC_RATES"
_FLAG = "--speculative-config"


def command(given: list[str], rates: str | None) -> list[str]:
    """The engine's argument list: as given, with synthetic acceptance where rates are given and drafts are made."""
    argv = ["vllm", "serve", *given]
    if rates and _FLAG in argv:
        place = argv.index(_FLAG) + 1
        config = json.loads(argv[place])
        wanted = json.loads(rates)[: config["num_speculative_tokens"]]
        argv[place] = json.dumps(
            {**config, "rejection_sample_method": "synthetic", "synthetic_acceptance_rates": wanted}
        )
    return argv


def seed(prefix: Path, cache: str | None) -> None:
    """Put what the environment keeps into the pod's own cache folder; without either the engine finds it again."""
    kept = prefix / KEPT
    if cache and kept.is_dir():
        shutil.copytree(kept, cache, dirs_exist_ok=True)


if __name__ == "__main__":
    seed(Path(sys.prefix), os.environ.get("VLLM_CACHE_ROOT"))
    sys.argv = command(sys.argv[1:], os.environ.get(RATES))
    from vllm.entrypoints.cli.main import main  # type: ignore[import-not-found]  # only in the engine's environment

    main()

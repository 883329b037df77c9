"""What the node runs where the image `vllm/vllm-openai` would run `vllm serve`: that, in the engine's own environment.

A file of its own, run by the engine's interpreter without the rest of this package. It changes one thing, and only
where a test asks for it by REALENGINE_SYNTHETIC_RATES: drafts are then accepted at these rates by position (JSON list,
one per K that can be drafted), whatever they say. The operator renders no such test aid, so it is added here.
"""

from __future__ import annotations

import json
import os
import sys

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


if __name__ == "__main__":
    sys.argv = command(sys.argv[1:], os.environ.get(RATES))
    from vllm.entrypoints.cli.main import main  # type: ignore[import-not-found]  # only in the engine's environment

    main()

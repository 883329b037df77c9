"""Why TGI's pods yield no windows. Called by `adapter`.

Its metrics (huggingface/text-generation-inference 3.3.7, backends/v3/src/backend.rs) count accepted drafts
(`tgi_request_skipped_tokens`) and passes, but neither how many tokens were drafted nor what a step takes as a request
sees it. A tuner given windows without drafts would take the pods for ones without a speculator.
"""

from __future__ import annotations

from collections.abc import Collection

from speculative_operator.domain.observation import Gap, PodWindow
from speculative_operator.domain.reasons import Reason

METRIC_NAMES: tuple[str, ...] = ()
_MESSAGE = "TGI's metrics do not include drafted tokens, so the tuner cannot measure K"


def read(pods: Collection[str]) -> dict[str, PodWindow | Gap]:
    """A gap for each of `pods`."""
    return {pod: Gap(Reason.UNSUPPORTED_BY_ENGINE, _MESSAGE) for pod in pods}

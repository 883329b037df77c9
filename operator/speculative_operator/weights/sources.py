"""Opens a model's source by its scheme and resolves it to a pin; the one way to a model. Called by inspector, fetcher
and CLI.

Clients are imported when their scheme is first asked for: reading a folder needs none of them.
"""

from __future__ import annotations

from pathlib import Path

from speculative_operator.domain.spec import ModelSource, Scheme
from speculative_operator.weights.local import open_claim
from speculative_operator.weights.source import Source


def open_source(source: ModelSource, claims_at: Path | None = None) -> Source:
    """The source at one version: a revision, tag or present content is resolved to a pin here, once.

    `claims_at` is the folder below which claims are mounted, each under its name. Raises WeightsError.
    """
    match source.scheme:
        case Scheme.PVC:
            return open_claim(source, claims_at)
        case Scheme.HF:
            from speculative_operator.weights.hub import open_hub

            return open_hub(source)
        case Scheme.OCI:
            from speculative_operator.weights.oci import open_registry

            return open_registry(source)
        case Scheme.S3:
            from speculative_operator.weights.s3 import open_bucket

            return open_bucket(source)
        case Scheme.POD:
            raise ValueError(f"{source.uri} is not a source: a pod fills it")

"""What an edit of a field of `spec` means for pods. Used by `spec`, read by `reconcile.upgrade`."""

from __future__ import annotations

from collections.abc import Mapping

NOT_OF_PODS: Mapping[str, bool] = {"of_pods": False}
"""Metadata of a field that may be edited without replacing pods, or replaces them only through the pair, the table or
the prepared K."""

"""The one error that rendering raises. Reconcile turns it into the condition reason RenderInvalid."""

from __future__ import annotations


class RenderError(ValueError):
    """A value that cannot become a manifest. The message names the field, the value and the remedy."""

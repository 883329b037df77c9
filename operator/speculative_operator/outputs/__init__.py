"""Whether the output with drafts is the same as without: how that is judged, and what is kept of it."""

"""Adapters: one `Engine` for each inference engine. Pure; used by render, reconcile and shell."""

"""Predicts the cost of a step and the gain of drafts: hardware and model tables, step-time model, acceptance model.

Called by the tuner, the engine adapters (facts of a pair) and the laboratory. Pure; numpy allowed. Every figure names
its source in `data/` or beside the constant; docs/tuning-mathematics.md explains the formulas.
"""

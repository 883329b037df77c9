"""Follows a SpeculatorTraining from its object to the trained speculator: which Job is to run, and what status says.

Pure, and apart from `reconcile`: what serves depends on nothing here. Called by `shell.trainings`.
"""

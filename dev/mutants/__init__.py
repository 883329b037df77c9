"""`make mutants`: changes one thing at a time in the code that guards what serves, and asks whether a test notices."""

"""The SGLang engine, as of 0.5.23."""

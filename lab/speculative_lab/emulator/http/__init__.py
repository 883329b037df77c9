"""The HTTP front end of the emulator: vLLM's OpenAI-compatible routes over one `EngineDriver`."""

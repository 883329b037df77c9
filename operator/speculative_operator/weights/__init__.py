"""Reading and fetching models from their sources. Runs in Jobs and in the command line, never in the operator."""

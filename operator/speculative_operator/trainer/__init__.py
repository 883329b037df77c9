"""The program that looks at a training's data beforehand and finishes what was trained. Runs in Jobs, never in the
operator."""

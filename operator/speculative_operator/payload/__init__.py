"""Files that run inside serving pods. They are mounted without the rest of this project, all in one folder."""

FILES = (
    "speculative_scheduler.py",
    "speculative_table.py",
    "speculative_blocks.py",
    "speculative_telemetry.py",
    "speculative_port.py",
    "speculative_off.py",
    "speculative_worker.py",
    "speculative_unseen.py",
    "speculative_hooks.py",
)
"""Names of the files to mount for vLLM's Live actuator, the one that `--scheduler-cls` names first."""

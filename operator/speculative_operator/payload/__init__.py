"""Files that run inside serving pods. They are mounted without the rest of this project, all in one folder."""

FILES = ("speculative_scheduler.py", "speculative_requests.py", "speculative_telemetry.py")
"""Names of the files to mount for vLLM's Live actuator, the one that `--scheduler-cls` names first."""

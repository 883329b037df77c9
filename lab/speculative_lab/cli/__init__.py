"""The commands `speculative simulate` and `speculative cases`; `speculative_operator.cli.main` finds them by name."""

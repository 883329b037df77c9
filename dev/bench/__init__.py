"""Speed and memory of the operator, to compare within one machine. `make bench` runs it; nothing is asserted."""

"""How fast the operator is and what it takes: `make bench` its pure part, `make bench-scale` a fleet of objects."""

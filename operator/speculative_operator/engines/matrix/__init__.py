"""What each engine can do, as data: rows that adapters register, asked by checks, the command line and the docs."""

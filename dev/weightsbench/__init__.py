"""How fast models are fetched, relative to curl on the same server, and in how much memory. Run by hand."""

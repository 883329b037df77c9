"""The children that the active table and the pair ask for, and what is still missing of them."""

"""Training of a speculator by Jobs: what they run, and what they tell. Pure."""

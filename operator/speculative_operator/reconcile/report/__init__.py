"""What is said of it all: status, conditions, events and the notes."""

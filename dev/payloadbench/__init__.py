"""What the payload costs a real engine: measurements, run by hand and by a harness."""

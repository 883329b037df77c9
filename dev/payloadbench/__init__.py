"""What the payload costs a real engine, and whether caps by request pay: measurements, run by hand and by a harness."""

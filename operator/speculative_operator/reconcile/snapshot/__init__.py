"""What stood in the cluster at one moment, read once into types. Nothing after it reads what others wrote."""

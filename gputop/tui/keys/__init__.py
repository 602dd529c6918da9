"""What the keys do, by subject."""

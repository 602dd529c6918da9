"""GPU processes and their trees: identity, activity, inspection and signals."""

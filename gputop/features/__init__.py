"""Optional features, each a folder of its own; no feature imports another."""

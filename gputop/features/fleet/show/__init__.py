"""Show a fleet: its screen, its pages, its data."""

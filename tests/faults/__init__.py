"""The fault matrix: what happens to a GPU monitor, what its user then sees, what goes on, and how it ends."""

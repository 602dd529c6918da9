"""What the host's processes did: workers, runs of idleness, and whose time it was."""

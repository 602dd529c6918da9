"""Programs that make what the repository keeps: ``python -m tests.tools.NAME``."""

"""The program's own tables for readers: the same pages for ``gputop help TOPIC`` and for ``docs/``."""

"""What the program's own tables say, for readers: pages of ``gputop help TOPIC`` and of ``docs/``, the same text."""

"""Many hosts at once: what exporters call things, what Prometheus is asked, and what follows from the answers.

Read-only, and without a screen: ``gputop.paint`` draws the frames that are made here, ``gputop.tui`` shows them.
"""

"""Many hosts at once: exporters' metric names, the queries to Prometheus, and what follows from the answers.

Read-only, and without a screen: ``gputop.paint`` draws the frames that are made here, ``gputop.tui`` shows them.
"""

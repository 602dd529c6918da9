"""The screen in a browser: the gate before it, the page, and one process for each viewer.

Any process that reaches this machine's loopback may connect, and counts as hostile until it has sent the key.
"""

"""The screen in a browser: the gate before it, the page, and one process for each viewer.

Whoever reaches this machine's loopback may connect, and counts as hostile until the key has been sent.
"""

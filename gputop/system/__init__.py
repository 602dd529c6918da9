"""Threads, files and programs, for use by every package.

Nothing here is waited for without a limit.
"""

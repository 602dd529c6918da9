"""Threads and files of the operating system, as every room may use them: neither is waited for without a limit."""

"""One file a command: joins a source, the monitor and an output.

Nothing below this package knows of commands.
"""

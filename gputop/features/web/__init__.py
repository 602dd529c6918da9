"""The screen in a browser: the server, and one process for each viewer."""

"""Whom a waiting thread waits for: pipes, files, sockets, services."""

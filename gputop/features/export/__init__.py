"""A watched run as Prometheus metrics: a loopback server, a text file, or one page of text. No screen here."""

"""Process trees for tests: real ones that a script starts, and made-up ones in a folder."""

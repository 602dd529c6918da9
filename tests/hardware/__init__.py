"""`python -m tests.hardware`: what only a machine with a GPU can show, in one command and one report."""

"""Real jobs whose GPU is the stand-in library, watched by the real program from outside: one file a case.

``python -m tests.e2e`` runs them all and prints what was wanted and what was said; ``python -m tests.e2e NAME…`` runs
some.
"""

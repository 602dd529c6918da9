"""Loaders of whole frameworks, one file a stack: ``REQUIREMENTS`` beside its ``CASE``. Run by ``--stacks`` alone."""

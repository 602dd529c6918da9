"""Accounts of a job or a recording."""

"""Accounts of a run: what each GPU's time went to, and a whole job's."""

"""The diagnosis: signals, attribution, rules, badges, one verdict per GPU.

Pure: no I/O, no clock.
"""

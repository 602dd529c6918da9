"""Sources of snapshots: this machine, a simulated node, a recording.

No source knows an output.
"""

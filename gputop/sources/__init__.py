"""Where snapshots come from: this machine, a simulated node, a recording. No source knows an output."""

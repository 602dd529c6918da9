"""Judge a fleet's GPUs: states, stragglers, verdicts."""

"""SM activity, one file for each rung: where it comes from on each GPU, or why there is none."""

"""SM activity, one file for each source: where it comes from on each GPU, or why there is none."""

"""SM activity, one file a rung: where it comes from on each GPU, or why it does not."""

"""SM activity, one file a rung: how much of the chip works, and how well that is known."""

"""The processes on the GPUs and below them: who they are, what they do, and what may be done to them."""

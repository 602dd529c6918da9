"""Which processes there are, whose children they are, and what they are called."""

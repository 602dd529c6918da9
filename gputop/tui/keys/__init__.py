"""Key handlers by subject."""

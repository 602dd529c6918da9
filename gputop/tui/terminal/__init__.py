"""The terminal itself: taking it, writing to it, giving it back."""

"""The fleet's screen: the same painter, theme, keys and terminal as a node's, on frames of a fleet."""

"""The rules, in the order in which they are asked."""

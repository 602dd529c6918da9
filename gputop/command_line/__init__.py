"""What a line of words means: the commands there are, their options, help, and the screen's start.

Features and commands build on this; it knows none of them.
"""

"""A day's ticks and more at full speed, part by part, and what they leave behind."""

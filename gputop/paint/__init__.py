"""Paint screens as rows of (text, style name).

Pure: knows no terminal, and no colours outside the theme.
"""

"""What a screen looks like, as rows of (text, style name). Pure: knows no terminal and no colours but the theme."""

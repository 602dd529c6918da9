"""Jobs as people have them, by what they are made of, and what must be said of each."""

"""One file a case: a job as people have it, and what must be said of it."""

"""What a thread waits in, by one look at /proc."""

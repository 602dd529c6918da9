"""Real training jobs whose GPU is the stand-in library, watched by gputop from outside."""

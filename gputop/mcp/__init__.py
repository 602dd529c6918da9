"""gputop for coding assistants: the Model Context Protocol over stdin and stdout, read-only, through its own SDK."""

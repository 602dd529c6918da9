"""gputop for coding assistants, over the Model Context Protocol."""

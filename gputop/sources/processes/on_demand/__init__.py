"""What is done to a process only when somebody asks: stacks, signals, deep looks."""

"""What gputop is beside the node's monitor, a folder each, with its own commands, painting and output."""

"""The queries by failure mode, a file each; ``gputop.fleet.queries`` joins them."""

"""Read a fleet: engines, hosts and their answers."""

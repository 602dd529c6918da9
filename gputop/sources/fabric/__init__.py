"""The fabric between machines: InfiniBand, RoCE, iWARP and EFA ports, as the kernel shows them to everybody."""

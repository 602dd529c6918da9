"""Every form of output that is not interactive."""

"""The exporter: a watched run as Prometheus metrics, without a screen."""

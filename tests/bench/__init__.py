"""What gputop costs, beside other monitors, on the same stand-in GPUs: ``python -m tests.bench``."""

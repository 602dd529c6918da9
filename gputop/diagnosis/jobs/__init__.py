"""Jobs seen as a whole: GPUs of one job judged beside each other."""

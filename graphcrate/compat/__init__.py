"""Facts about GPUs, drivers and wheels, as data and pure functions."""

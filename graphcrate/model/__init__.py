"""Pure values that travel between stages. No I/O, no environment, no clock."""

"""The suites, the verdict on their output, and past results."""

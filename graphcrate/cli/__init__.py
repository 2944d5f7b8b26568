"""The command line: arguments to calls, results to stdout, errors to exit codes."""

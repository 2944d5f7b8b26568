"""Wheels: reading, checking, installing into layers, bytecode, pure-Python sdists."""

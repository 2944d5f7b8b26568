"""Backends that run a command inside an image."""

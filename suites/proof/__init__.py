"""Shared parts of the proving programs: the verdict line, the look at the stack, graphs and the curve.

The images' Pythons go back to 3.9, so these files keep to its syntax.
"""

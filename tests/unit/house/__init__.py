"""Tests of the whole house: imports, names, words, docstrings, pages and commands of the docs."""

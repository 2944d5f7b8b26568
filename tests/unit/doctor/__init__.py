"""Tests of `doctor/`, the program for nodes."""

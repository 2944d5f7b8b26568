"""The contents of two artifacts of any form, and the differences between them.

`opening` reads an artifact into a tree; `compare` finds the differences, and judges what may differ.
"""

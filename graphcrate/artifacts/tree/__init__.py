"""What two artifacts hold, whatever their form, and what differs between them.

`opening` reads an artifact into a tree; `compare` finds the differences, and judges what may differ.
"""

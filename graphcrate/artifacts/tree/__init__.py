"""What two artifacts hold, whatever their form, and what differs between them.

`opening` reads an artifact into a `model.tree.Tree`; `compare` finds the differences, and judges what may differ.
"""

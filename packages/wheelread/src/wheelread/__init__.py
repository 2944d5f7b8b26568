"""Wheels, opened and read: `wheel` compares names, metadata and RECORD; `archive` has the zip file.

`import_names` says which file Python imports of several wheels in one folder; `errors` has what is raised.
"""

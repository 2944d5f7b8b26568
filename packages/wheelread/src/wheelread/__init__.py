"""Wheels, opened and read: `wheel` compares names, metadata and RECORD; `archive` has the zip file; `errors`."""

"""Images of any form: located by what a user types, opened as a tree, compared, converted."""

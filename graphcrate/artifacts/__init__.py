"""Any image, whatever its form: located by what a user types, opened as a tree, compared, converted."""

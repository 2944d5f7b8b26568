"""Any image, whatever its form: located by what a person types, opened as a tree, compared, converted."""

"""Checks of an image, judged from its bytes: runtime contracts and binary audit."""

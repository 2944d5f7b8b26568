"""The wheelhouse: compiled sdists become checked wheels, once, in the image's own base."""

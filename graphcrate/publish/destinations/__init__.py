"""Destinations of published images: each kind a class with one interface (`destination.Destination`)."""

"""New releases: listed, weighed for each variant, tried in a copy, and said."""

"""From a recipe variant to a lock, and from a lock to files in the cache."""

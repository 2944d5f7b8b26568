"""What new releases make of facts, recipes and locks: listed, measured, weighed, tried in a copy, and said."""

"""The user's packages on top of a stack, which stays as it is.

additions ──solving──▶ uv, in turns ──sdists──▶ sources that it may choose
    │          └ obstacles, conflicts, stack_bounds: why there is no solution; conflict_words: its words
    └ local: own wheels, projects and commits; refusals: names and files that cannot be taken
"""

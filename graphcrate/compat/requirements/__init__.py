"""Requirements as people have them: files and options in, one form out.

    requirements.txt, pylock.toml ──requirement_files──┐
    environment.yml ──────────────conda────────────────┼──▶ Translated (pip's lines) ──own──▶ Additions
    pyproject.toml, other locks ──projects─────────────┘
    --with, --apt, a recipe of one's own ──────────────────────────────────own──▶ Additions

`expected` compares what a file says of the stack's own packages with what an image has; `mpi` adds what MPI needs.
A reader of another format is a module here that returns `Translated`, and its row in `requirement_files`.
"""

"""Requirements as people have them: files and options in, one form out.

    requirements.txt ─────────────────────requirement_files──┐
    the rest ──projectfiles──▶ Needs ──project_files, conda──┴─▶ Translated (pip's lines) ──package_text──▶ Additions
    --with, --apt ────────────────────────────────────────────────own_typed, package_text─────────────────▶ Additions
    a recipe of one's own ────────────────────────────────────────own, own_files, package_text────────────▶ Additions

`requirement_lines` says what a line means, `own_packages` names and merges packages of Additions; `within` is the limit
of a stranger's recipe.

`expected` compares what a file says of the stack's own packages with what an image has; `mpi` adds what MPI needs.
A reader of another format is a module of projectfiles; `refusals` has our words for its errors.
"""

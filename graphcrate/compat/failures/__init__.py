"""Failures: the meaning of what compilers, back-ends, loaders and Python's imports say, and what to type next.

    CompileFailure ──compiling.explain──▶ Diagnosis ──with what was typed──▶ BuildError
    a line of a traceback ──importing.remedy──▶ a package to ask for

- `failure`: both values. `first_error`: the line of an output that counts.
- `compiling`: the entry for sources that became no wheels that work; `loading`: what the image's Python says of those.
- `error_lines`: error lines of any package, and of one that is known for it.
- `missing`: a header, library, program or module that is absent, and Debian's package with it. `cuda`: those of CUDA.
- `ends`: of uv and git, which could not fetch: `data/program_ends.toml`.
- `importing`: exceptions that the import of a package ends with.

A new diagnosis is a row of one of their tables and a case in tests/unit/inputs/test_compile_failures.py.
"""

"""Files that say what a Python project needs, read without running anything.

`files` reads any of them by its name, and those that it refers to; it is what `python -m projectfiles` calls. Below it:

- `pyproject` has pyproject.toml, with `poetry_tables` and `pixi`; `uv_locks`, `pylocks` (PEP 751), `poetry_locks` and
  `pdm_locks` have locks. `parts` is what several of these have, `toml_text` how they are read.
- `conda` has environment.yml, `conda_spec` its match specifications; `requirements_txt` pip's lines.
- `git_address` has addresses of repositories, of which no word becomes an option or a program.
- `poetry_versions` and `alternatives` make PEP 440 of versions that pip does not know (`^1.2 || ^2.1`).
- `values`, `environments` (machines) and `errors` are what all of them speak of.
"""

"""Files that people have in place of a recipe, read and never run: a Dockerfile, a definition, a script, a README.

Dockerfile, .def ──dockerread──▶ instructions ──▶ commands, installs ──▶ Draft ──written──▶ a recipe, a table
install.sh, page                                    (data/adopt.toml)       │
                                     base image, torch's lines ────stack────┘
"""

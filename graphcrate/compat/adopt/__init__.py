"""Files that people have in place of a recipe, read and never run: a Dockerfile, a definition, a script, a README.

Dockerfile ──dockerfile──┐
.def ────────definition──┼──▶ instructions ──▶ commands, installs ──▶ Draft ──written──▶ a recipe, a table
install.sh ──shell───────┘                      (data/adopt.toml)       │
                                     base image, torch's lines ──stack──┘
"""

"""Dockerfiles, Singularity definitions, scripts and pages with commands, read and never run.

`contents` reads a whole file, which is what `python -m dockerread` prints. Below it:

- `dockerfile` has instructions with their lines, `stages` what a Dockerfile's last stage is made of.
- `definition` has the parts of a definition, and the commands of a page for people.
- `shell` has commands of a shell's text, with the variables that are known, `expansions` what `${A//./}` makes of one;
  `installers` words and options of programs that install.
- `errors` says why a file is not taken.
"""

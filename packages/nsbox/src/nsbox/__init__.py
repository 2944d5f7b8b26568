"""Runs a program in a folder as its root, with no daemon and no root, and nothing left mounted.

    box.run(box, start) ──orders──▶ namespaces (a program: enters, builds the root) ──seccomp──▶ the program

- `needs`: what it may do, with the calls of `syscalls`, written for the kernel by `seccomp`.
- `walls` says what this machine's kernel lacks for it; `errors`, why nothing can be isolated, and what to ask for.
- `binfmt`: programs of another processor.
"""

"""The sandbox: a command inside a root file system, with no daemon and no root.

    sandbox.run(step) ──steps──▶ namespaces (a program: enters, builds the root) ──seccomp──▶ the command

- What a step may do: `steps`, with the calls of `syscalls` and `seccomp`; `walls` says what this kernel lacks for it.
- What it sees: `rooted` and `beneath` resolve paths, `own_root` makes a root of this machine's Python, `gpu` adds
  devices and drivers, `emulation` another processor's programs, `attach` the user's terminal.
"""

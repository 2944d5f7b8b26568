"""The sandbox: a command inside a root file system, with no daemon and no root.

    sandbox.run_in(step) ──steps──▶ nsbox (packages/: namespaces, seccomp, Landlock) ──▶ the command

- What a step may do: `steps`.
- What it sees: `rooted` and `beneath` resolve paths, `own_root` makes a root of this machine's Python, `gpu` adds
  devices and drivers, `emulation` another processor's programs, `attach` the user's terminal.
"""

"""Will the programs and libraries of a tree load, and on which GPUs do they run? Nothing of the tree is started.

`tree` reads a folder and names its faults; it is what `python -m treeaudit` calls. Below it:

- `elf` reads what the loader goes by, `fatbin` the GPU code of a library; `judge` makes one value of both.
- `loader` finds libraries as glibc's loader does; `links` follows symbolic links without leaving the tree.
- `gpus` says which code runs on which GPU; `values` and `errors` are what all of them speak of.
"""

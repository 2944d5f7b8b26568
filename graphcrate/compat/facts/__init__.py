"""Compatibility facts: the tables of `compat/data`, read once and judged by pure functions.

    compat/data/*.toml ──facts.table──▶ rows ──a module for each subject──▶ answers

- GPUs, drivers, torch, CUDA: `gpu_table`, `driver_table`, `facts`, `gpu_code`, `toolkits`, `torch_compile`, `pairs`,
  `glt`, `pyg_lib`.
- Packages: `packages`, `names`, `together`, `sonames`, `licences`, `cutoff`, `allowances`, `slim`, `reserved`.
- Compiling: `back_ends`, `build_environment`, `compile_time`, `compilers`, `cuda_sources`, `crates`, `libraries`,
  `standard_library`.
- Machines and sites: `addresses`, `emulators`, `fabrics`, `identities`, `slurm_ends`, `suites`, `verbs`.

A new fact is a row of a table with its source; a new table gets a module here that says how it is read.
"""

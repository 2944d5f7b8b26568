"""Variants of recipes: which of them runs on a machine, why, and what to type next.

    recipes/*.toml ──recipes──▶ Recipe ──catalog──▶ variants and their committed locks
    targets/*.toml ──targets──▶ Target
    (variant, target) ──rules──▶ verdicts ──explain──▶ the chosen one, and what stands against the others
    BuildRequest ──choice──▶ the variant and the candidates that are built
    options of a command ──request──▶ BuildRequest ──next_steps──▶ the same command with one thing changed

`support` and `ported` answer for tables: every GPU against every CUDA, every platform against every recipe.
"""

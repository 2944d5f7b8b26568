"""NVIDIA's GPUs by name: `models` reads `gpus.toml`; `errors` has what is wrong with a name as a value."""

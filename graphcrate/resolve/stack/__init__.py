"""A stack: from the candidates of a variant to one lock.

    candidates ──resolver──▶ torch and PyG of their channels ──extensions──▶ wheels or sources
                    │                                   └ built_for: for that torch and CUDA
                    └──pinning──▶ everything else, by uv ──base──▶ Lock

`locks` says which request a lock answers.
"""

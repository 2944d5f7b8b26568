"""Sources of files: channels, mirrors and indexes, what they list, and fetching it by hash.

    channels, wheel_mirrors, user_indexes, further ──▶ Source ──index──▶ Link ──offers──▶ Offer
    locked file ──search──▶ the sources that may have it ──fetch──▶ the cache

`target` says which files fit an image, `metadata` what a release needs, `failures` what sources said that gave nothing;
`request_sources` is one request's way to all of them, `uv` the program; `crates` and `pyg_lib` come from elsewhere;
`linked` reads libraries of wheels; `hosts` lists whom all of them ask.
"""

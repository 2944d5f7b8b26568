"""A cache that a site shares: what one person compiled, signed, for all others (docs/cache.md).

    named ──▶ site_cache ──▶ places (a registry, a folder, a web server)
                  └──▶ entry (what is signed, and whether it is)

Nothing is taken whose statement no trusted key has signed, from any place; no fault of a place ends a build.
"""

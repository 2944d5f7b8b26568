"""Builds of a site: `questions`, which it reads strictly, and `client`, which asks it for `image --at`.

The site itself is `packages/buildsite`, above.
"""

"""Tars of strangers, and layers of container images: read in one pass, strictly, within limits.

a layer's file ──blob──▶ stream ──entries──▶ each layer's entries ──overlaid──▶ the image's files
                           └ limits: a gauge of what is inflated

`errors` has what is raised; a program whose own errors are such, too, has readers raise its own classes.
"""

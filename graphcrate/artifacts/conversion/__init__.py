"""A layout becomes what a runtime takes: a SIF, enroot's squashfs, a difference, an archive, a folder.

run           finds the image, chooses the writer
  squashed    SIF and enroot's squashfs      difference   what an image has over another one
  unsquashed  archives for Docker and skopeo, folders
compression   which one a kernel mounts
job           what was asked for, where it goes, what came of it
"""

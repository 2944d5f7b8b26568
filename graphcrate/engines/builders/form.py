"""The form of what the builder writes, as one number for keys. Light to import: an unchanged image needs no more."""

#: Raise it whenever the same plan would give other bytes: places of files, RECORD, bytecode, or the tar and gzip
#: stream (`oci.layer` has a number of its own, which base layers share).
LAYER_FORMAT = 1

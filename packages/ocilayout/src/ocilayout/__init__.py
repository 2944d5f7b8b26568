"""OCI images, written: the same content gives the same bytes.

`layer` writes a layer's blob, `tar` its headers; `image` puts the configuration and the manifest together, `layout`
the folder. `spec` has the documents of the specification, `folder` makes an image of a folder, which is what
`python -m ocilayout` calls.
"""

"""Facts of the doctor that a host alone is told, for `cli.diagnosis`.

Written by `make generate` from graphcrate/compat/data. Do not edit.
"""

#: program, its release that has a fault, the one that is without, and what it is
RELEASES = (
    ("apptainer", "1.5.0", "1.5.1", "Apptainer 1.5.0 keeps a SIF that mksquashfs left unfinished; 1.5.1 does not"),
)

#: id of an error → what to do where its text is of an image
FIXES = {
    "apptainer-squashfs": "./build.py convert REF --to sif --kernel 3.10    writes gzip in place of zstd",
    "build-isolation": "make image WITH=…    (the package: its back-end gets torch and numpy); BUILD_APT=… for more",
    "cuda-of-extension": "make image CUDA=…    has both for one CUDA",
    "cudart": "make image CUDA=…    with the package too: it is compiled for that torch",
    "externally-managed": "make image WITH=…    brings the package with the image",
    "glt-symbol": "make image STACK=glt    has the release for its torch",
    "libgl": "make image WITH=opencv-python-headless    in place of opencv-python; or APT=libgl1 beside it",
    "module-part": "make image WITH=…    ({package}<VERSION, as old as the program); torch and PyG: ./build.py list",
    "numpy-abi": "make image WITH=…    (numpy<2)",
    "numpy-names": "make image WITH=…    (numpy<1.24; of 2.0: numpy<2); or a newer package that the traceback names",
    "pip-build": "make image WITH=…    (the package: compiled in the sandbox); BUILD_APT=… for its compiler",
    "pkg-resources": "make image WITH=…    (setuptools<82); or a newer release of the package",
    "protobuf": "make image WITH=…    (protobuf<3.21); or a newer package that the traceback names",
    "read-only": "make image WITH=…    for a package; for files ./build.py run REF --mount DIR:/out",
}

"""Licences by SPDX's ids, source packages and bundled libraries: from METADATA, dpkg's files and names of libraries."""

import base64
import json

import msgspec
import pytest
from packaging.licenses import canonicalize_license_expression

from graphcrate.checks import bundled, licences, system
from graphcrate.checks.bundled import Bundled
from graphcrate.compat.facts import facts
from graphcrate.compat.facts import licences as known
from graphcrate.model.lock import decode_lock
from tests import ROOT
from tests.unit.proof_lock import LOCK, ON_REGISTRY

SITE = "/opt/venv/lib/python3.11/site-packages"
CUDA, CUDNN = "LicenseRef-NVIDIA-CUDA-EULA", "LicenseRef-NVIDIA-cuDNN"


def of_package(name, *lines, files=None):
    """Facts of one package with these lines of METADATA. `files`: name below its .dist-info → content."""
    folder = f"{SITE}/{name}-1.0.dist-info"
    texts = {f"{folder}/METADATA": "\n".join([f"Name: {name}", *lines, "", ""]).encode()}
    texts |= {f"{folder}/{file}": data for file, data in (files or {}).items()}
    (found,) = licences.of_image(texts, "3.11").values()
    return found


OSI = "Classifier: License :: OSI Approved :: "
PROPRIETARY = "Classifier: License :: Other/Proprietary License"


@pytest.mark.parametrize(
    ("name", "lines", "said"),
    [
        ("a", ["License-Expression: mit OR apache-2.0 with llvm-exception"], ["MIT OR Apache-2.0 WITH LLVM-exception"]),
        ("a", ["License-Expression: no expression", "License: MIT"], ["no expression"]),
        ("a", ["License: MPL-2.0 AND MIT"], ["MPL-2.0 AND MIT"]),
        ("a", ["License: BSD-3", f"{OSI}BSD License"], ["BSD-3-Clause"]),
        ("a", ["License: Dual License", f"{OSI}BSD License", f"{OSI}MIT License"], ["BSD License", "MIT"]),
        ("a", ["License: BSD"], ["BSD"]),
        (
            "a",
            ["License: Apache 2.0", f"{OSI}Apache Software License", f"{OSI}BSD License"],
            ["Apache-2.0", "BSD License"],
        ),
        ("a", ["License: Secret", PROPRIETARY], ["Other/Proprietary License"]),
        ("a", [], []),
        # NVIDIA's wheels, as those of the committed locks have it
        ("nvidia-cublas-cu11", ["License: NVIDIA Proprietary Software", PROPRIETARY], [CUDA]),
        ("nvidia-cublas", ["License-Expression: LicenseRef-NVIDIA-Proprietary"], [CUDA]),
        ("nvidia-cudnn-cu12", ["License: LicenseRef-NVIDIA-Proprietary", PROPRIETARY], [CUDNN]),
        ("nvidia-cusparselt-cu12", ["License: NVIDIA Proprietary Software"], ["LicenseRef-NVIDIA-cuSPARSELt"]),
        ("nvidia-nccl-cu13", ["License-Expression: LicenseRef-NVIDIA-Proprietary"], ["BSD-3-Clause"]),
        ("nvidia-nvtx-cu12", ["License: Apache 2.0", PROPRIETARY], ["Apache-2.0"]),
        (
            "cuda-bindings",
            ["License-Expression: LicenseRef-NVIDIA-SOFTWARE-LICENSE"],
            ["LicenseRef-NVIDIA-SOFTWARE-LICENSE"],
        ),
    ],
)
def test_package_metadata_gives_spdx_licences(name, lines, said):
    assert list(of_package(name, *lines).licences) == said


CONDITIONS = "Redistribution and use in source and binary forms, with or without modification, are permitted provided "
CONDITIONS += "that the following conditions are met: 1. Keep the notice. {}THIS SOFTWARE IS PROVIDED AS IS"


@pytest.mark.parametrize(
    ("text", "licence"),
    [
        (CONDITIONS.format("3. Neither the name of the holder "), "BSD-3-Clause"),
        (CONDITIONS.format("") + " Neither the name: of another one further down", "BSD-2-Clause"),
        ("Permission is hereby granted", "BSD License"),
    ],
)
def test_bsd_classifier_with_a_licence_text_gives_its_spdx_id(text, licence):
    field = "License: Copyright\n " + text.replace(" that ", "\n        that ")
    assert of_package("numpy", field, f"{OSI}BSD License").licences == (licence,)


@pytest.mark.parametrize(
    ("debian", "spdx"),
    [
        ("GPL-2+", "GPL-2.0-or-later"),
        ("GPL-2.0+", "GPL-2.0-or-later"),
        ("LGPL-2.1", "LGPL-2.1-only"),
        ("GPLv3+", "GPL-3.0-or-later"),
        ("GFDL-NIV-1.3+", "GFDL-1.3-no-invariants-or-later"),
        ("Expat", "MIT"),
        ("BSD-3-clause or GPL-2", "BSD-3-Clause OR GPL-2.0-only"),
        ("GPL-1+ or Artistic, and Expat", "(GPL-1.0-or-later OR Artistic-1.0) AND MIT"),
        ("GPL-2 with Linux-syscall-note exception", "GPL-2.0-only WITH Linux-syscall-note"),
        # what would be a guess
        ("GPL", ""),
        ("public-domain", ""),
        ("GPL-3+ with Autoconf exception", ""),
        ("GPL-2+ or REGCOMP", ""),
        ("Expat, or ISC, and Zlib", ""),
    ],
)
def test_debian_licence_short_name_gives_its_spdx_id(debian, spdx):
    assert known.of_debian(debian) == spdx


def test_licence_table_has_spdx_ids_only():
    ids = [*facts.table("licences", dict[str, str], "classifiers").values()]
    ids += facts.table("licences", dict[str, str], "texts").values()
    ids += facts.table("licences", dict[str, str], "debian").values()
    ids += [one for row in facts.table("licences", dict[str, tuple[str, ...]], "families").values() for one in row]
    rows = [row for part in ("nvidia", "bundled") for row in facts.table("licences", tuple[dict[str, str], ...], part)]
    ids += [row["licence"] for row in rows]
    assert [one for one in ids if canonicalize_license_expression(one) != one] == []
    assert all(known.address(one) for one in ids if one.startswith("LicenseRef-"))


COPYRIGHT = b"""Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: a thing

Files: *
Copyright: someone
License: GPL-2+
 This program is free software.
 .
 More of its text.

Files: lib/*
Copyright: somebody
License: BZIP

Files: debian/*
License: GPL-2+

License: Expat
 The definition of a licence is none of a file.
"""
STATUS = b"""Package: libc6
Status: install ok installed
Architecture: amd64
Source: glibc
Version: 2.36-9+deb12u10
Description: GNU C Library
 Package: not this one

Package: python3
Architecture: amd64
Source: python3-defaults (3.11.2-1)
Version: 3.11.2-1+b1

Package: zlib1g
Architecture: amd64
Version: 1:1.2.13.dfsg-1

Package: damaged
"""


def test_dpkg_status_and_copyright_give_source_and_licences():
    texts = {
        "/var/lib/dpkg/status": STATUS,
        "/usr/share/doc/libc6/copyright": COPYRIGHT,
        "/usr/share/doc/zlib1g/copyright": b"This is zlib, and nothing but people can read it.\nLicense: none\n",
    }
    found = system.of_image(texts, {"/usr/share/doc/python3": "libc6"})
    assert {key: (one.source, one.version, one.licences) for key, one in found.items()} == {
        ("libc6", "2.36-9+deb12u10", "amd64"): ("glibc", "2.36-9+deb12u10", ("GPL-2.0-or-later", "BZIP")),
        ("python3", "3.11.2-1+b1", "amd64"): ("python3-defaults", "3.11.2-1", ("GPL-2.0-or-later", "BZIP")),
        ("zlib1g", "1:1.2.13.dfsg-1", "amd64"): ("zlib1g", "1:1.2.13.dfsg-1", ()),
    }
    assert system.of_image({}, {}) == {}


def row(path, content=b""):
    return f"{path},sha256={base64.urlsafe_b64encode(bytes(31) + content[:1]).decode().rstrip('=')},1"


def libraries(package, *paths):
    record = "\n".join([*(row(path, b"a") for path in paths), f"{package}/__init__.py,,"]).encode()
    found = of_package(package, files={"RECORD": record}).bundled
    assert all(one.sha256 == "00" * 31 + "61" and one.sha256 in one.purl for one in found)
    return {one.path.removeprefix(f"{SITE}/"): (one.name, one.version, *one.licences) for one in found}


def test_bundled_libraries_are_recognised_by_file_name():
    assert libraries(
        "numpy",
        "numpy.libs/libgfortran-040039e1-0352e75f.so.5.0.0",
        "numpy.libs/libopenblas64_p-r0-0cf96a72.3.23.dev.so",
        "numpy.libs/libscipy_openblas64_-32a4b2a6.so",
        "numpy/core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so",
    ) == {
        "numpy.libs/libgfortran-040039e1-0352e75f.so.5.0.0": (
            "libgfortran",
            "5.0.0",
            "GPL-3.0-or-later WITH GCC-exception-3.1",
        ),
        "numpy.libs/libopenblas64_p-r0-0cf96a72.3.23.dev.so": ("libopenblas64_p", "0.3.23.dev", "BSD-3-Clause"),
        "numpy.libs/libscipy_openblas64_-32a4b2a6.so": ("libscipy_openblas64_", "", "BSD-3-Clause"),
    }
    # torch's own libraries are torch; NVIDIA's and GCC's are not, with a hash in their names or without
    assert libraries(
        "torch",
        "torch/lib/libtorch_cuda.so",
        "torch/lib/libc10.so",
        "torch/lib/libgomp.so.1",
        "torch/lib/libcudart-d0da41ae.so.11.0",
        "torch/lib/libcudnn_ops_infer.so.8",
        "torch/lib/libshm/socket.h",
    ) == {
        "torch/lib/libgomp.so.1": ("libgomp", "1", "GPL-3.0-or-later WITH GCC-exception-3.1"),
        "torch/lib/libcudart-d0da41ae.so.11.0": ("libcudart", "11.0", CUDA),
        "torch/lib/libcudnn_ops_infer.so.8": ("libcudnn_ops_infer", "8", CUDNN),
    }
    assert libraries(
        "torchvision", "torchvision.libs/libnvjpeg.36e11081.so.13", "torchvision.libs/libz.343cf889.so.1"
    ) == {
        "torchvision.libs/libnvjpeg.36e11081.so.13": ("libnvjpeg", "13", CUDA),
        "torchvision.libs/libz.343cf889.so.1": ("libz", "1", "Zlib"),
    }
    # and NVIDIA's tools, which are theirs as well
    assert libraries("triton", "triton/backends/nvidia/bin/ptxas-blackwell", "triton/_C/libtriton.so") == {
        "triton/backends/nvidia/bin/ptxas-blackwell": ("ptxas-blackwell", "", CUDA)
    }
    assert libraries("nvidia-cublas-cu11", "nvidia/cublas/lib/libcublas.so.11") == {}


def bill(*parts):
    return json.dumps({"bomFormat": "CycloneDX", "components": parts, "metadata": {"x": 1}}).encode()


def test_sbom_in_a_wheel_gives_its_bundled_libraries():
    openssl = {"name": "openssl", "version": "3.5.1", "purl": "pkg:generic/openssl@3.5.1"}
    crate = {
        "name": "memchr",
        "version": "2.7",
        "licenses": [{"expression": "MIT OR Unlicense"}],
        "purl": "pkg:cargo/memchr@2.7?download_url=file:///home/ci/memchr&checksum=sha256:00",
    }
    own = {"name": "A-thing", "version": "1.0", "purl": "pkg:pypi/A_Thing@1.0", "components": [openssl]}
    files = {
        "sboms/auditwheel.cdx.json": bill(own, crate, {"name": "x" * 999}),
        "sboms/broken.json": b"{",
        "sboms/spdx.json": b'{"spdxVersion": "SPDX-2.3"}',
        "sboms/other.json": b'{"components": {"name": "none"}}',
        "RECORD": row("a.libs/libz-00000001.so.1").encode(),
    }
    assert of_package("a-thing", files=files).bundled == (
        Bundled(
            name="memchr", version="2.7", purl="pkg:cargo/memchr@2.7?checksum=sha256:00", licences=("MIT OR Unlicense",)
        ),
        Bundled(name="openssl", version="3.5.1", purl="pkg:generic/openssl@3.5.1"),
    )
    # one that names nothing but the package itself says nothing of its libraries
    files["sboms/auditwheel.cdx.json"] = bill({**own, "components": []})
    assert [one.name for one in of_package("a-thing", files=files).bundled] == ["libz"]
    assert bundled.of_package("a", "/nowhere", {}) == ()


# The label of an image


LOCKS = sorted((ROOT / "images").glob("*/*/*.lock.json"))


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: "-".join(path.parts[-3:-1]))
def test_licence_label_is_one_expression_of_the_whole_lock(path):
    lock = decode_lock(path.read_bytes())
    said = known.of_lock(lock)
    assert canonicalize_license_expression(said) == said
    parts = known.parts_of(said)
    assert len(set(parts)) == len(parts)
    assert {"Apache-2.0", "LicenseRef-Debian-copyright", CUDA, CUDNN} <= set(parts)
    # nobody has said under what these are
    assert {one for one in parts if one.startswith("LicenseRef-package-")} <= {"LicenseRef-package-graphlearn-torch"}
    table = facts.table("package_licences", dict[str, dict[str, str]])
    unknown = {one.name for one in lock.packages if one.version not in table.get(one.name, {})}
    assert unknown <= {"graphlearn-torch", "cuda-toolkit"}, "python -m tools.locked_licences"


def test_licence_label_has_license_refs_for_unknown_packages():
    parts = known.parts_of(known.of_lock(LOCK))
    assert {"LicenseRef-package-my-model", "MIT", "BSD-3-Clause", "LicenseRef-Debian-copyright"} <= set(parts)
    on_registry = known.parts_of(known.of_lock(msgspec.structs.replace(LOCK, base=ON_REGISTRY)))
    assert "LicenseRef-base-image" in on_registry
    assert "LicenseRef-Debian-copyright" not in on_registry
    plain = msgspec.structs.replace(LOCK, packages=())
    assert CUDA not in known.of_lock(plain)
    assert CUDA in known.parts_of(known.of_lock(plain, devel=True))


@pytest.mark.parametrize(
    ("expression", "parts"),
    [
        ("MIT", ("MIT",)),
        ("MIT AND (ISC OR Zlib) AND Apache-2.0", ("MIT", "(ISC OR Zlib)", "Apache-2.0")),
        ("MIT OR ISC AND Zlib", ("MIT OR ISC AND Zlib",)),
        ("(MIT AND ISC) OR Zlib", ("(MIT AND ISC) OR Zlib",)),
    ],
)
def test_licence_expression_is_split_at_top_level_and(expression, parts):
    assert known.parts_of(expression) == parts
    assert known.all_of([*parts, *parts]) == known.all_of([expression])

"""Provenance, reports and the bill of materials: their bytes, all of the lock in them, and what they must not tell."""

import re
from pathlib import Path

import msgspec
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from dssesign import statement
from dssesign.statement import Resource
from graphcrate.checks import licences as facts
from graphcrate.checks.bundled import Bundled
from graphcrate.checks.licences import PackageFacts
from graphcrate.checks.system import SystemPackage
from graphcrate.model.lock import ImageToolkit, LockedFile, WheelToolkit, decode_lock
from graphcrate.model.report import BuildParameters, SmokeReport
from graphcrate.publish import predicates, provenance
from graphcrate.publish.bill import canonical, parts, sbom
from tests import ROOT
from tests.made import bookworm, deb, wheel
from tests.unit.proof_lock import COMPILATION, LOCK, ON_REGISTRY, PACKAGES, SUBJECT

GOLDEN = Path(__file__).parent.parent / "golden" / "proof"
CANARIES = ("/home/alice", "mirror.inside.example", "registry.inside.example")
ASKED = BuildParameters(recipe="pyg", variant="11.8", gpus=("v100",), channel="pytorch", extensions="auto")
SUITE = SmokeReport(
    suite="dna", status="passed", device="Tesla V100", seconds=12.5, metrics={"test_accuracy": 0.9},
    driver="535.54.03", runtime="apptainer", runtime_version="1.4.5",
    node="gpu-07.inside.example", partition="secret-project", job="4711",
)  # fmt: skip


def built(lock=LOCK):
    return provenance.provenance(lock, ASKED, "embedded", "f" * 64)


def test_provenance_has_its_golden_bytes():
    """No time and no invocation of the machine in it: either would make every build another one."""
    said = statement.encode(statement.make(SUBJECT.name, SUBJECT.digest, predicates.PROVENANCE, built()))
    assert msgspec.json.format(said, indent=2) + b"\n" == (GOLDEN / "provenance.json").read_bytes()


def test_provenance_names_lock_files_and_registry_base_by_digest():
    lock = msgspec.structs.replace(LOCK, base=ON_REGISTRY)
    for one in (LOCK, lock):
        named = built(one)["buildDefinition"]["resolvedDependencies"]
        assert named[0] == Resource(name="pytorch.lock.json", digest={"sha256": one.sha256})
        assert {file.sha256 for file in files_of(one)} <= {entry.digest.get("sha256") for entry in named}
    assert (named[1].digest, named[1].uri) == ({"sha256": "b" * 64}, f"pkg:oci/python@sha256:{'b' * 64}?arch=amd64")


class Looked(msgspec.Struct):
    """As an audit's report: it begins with what a person called the image."""

    subject: str = "/home/alice/dist/pyg"
    glibc: str = "2.17"


def test_smoke_statement_keeps_device_and_metrics_and_names_no_machine():
    smoke = predicates.smoke([SUITE], manifest="sha256:1", config="sha256:2", cpu_only_allowed=True)
    (suite,) = smoke["suites"]
    assert (suite["device"], suite["driver"], suite["metrics"]) == ("Tesla V100", "535.54.03", {"test_accuracy": 0.9})
    assert smoke["cpuOnlyAllowed"] is True
    assert predicates.audit(Looked()) == {"glibc": "2.17"}
    said = msgspec.json.encode([built(), smoke]).decode()
    assert not [word for word in (*CANARIES, SUITE.node, SUITE.partition, SUITE.job, "/home/") if word in said]


# The bill of materials


LOCKS = sorted((ROOT / "images").glob("*/*/*.lock.json"))


def changed(**fields):
    return msgspec.structs.replace(LOCK, **fields)


def with_toolkit(toolkit):
    return changed(compilation=msgspec.structs.replace(COMPILATION, toolkit=toolkit))


def component(found, name):
    (one,) = (one for one in found["components"] if one["name"] == name)
    return one


def files_of(value):
    """Every LockedFile below a value."""
    if isinstance(value, LockedFile):
        yield value
    parts = [getattr(value, name) for name in getattr(value, "__struct_fields__", ())]
    for part in value if isinstance(value, tuple) else parts:
        yield from files_of(part)


def is_valid(found):
    return JsonStrictValidator(SchemaVersion.V1_6).validate_str(canonical(found).decode()) is None


def test_sbom_has_its_golden_bytes_for_any_package_order():
    assert canonical(sbom(LOCK, SUBJECT)) == (GOLDEN / "sbom.json").read_bytes()
    assert set(parts(changed(packages=PACKAGES[::-1]))) == set(parts(LOCK))


KINDS = {
    "debian": LOCK,
    "registry": changed(base=ON_REGISTRY),
    "wheels": with_toolkit(WheelToolkit(version="13.0.88", wheels=(wheel("nvidia-cuda-nvcc", "13.0.88"),))),
    "image": with_toolkit(ImageToolkit(version="11.8.89", reference="nvidia/cuda", digest="sha256:" + "d" * 64)),
    "image by tag": with_toolkit(ImageToolkit(version="11.8.89", reference="nvidia/cuda", digest="")),
    "for the CPU": with_toolkit(None),
    "nothing compiled": changed(packages=PACKAGES[:5], compilation=None),
}


@pytest.mark.parametrize("devel", [False, True], ids=["", "devel"])
@pytest.mark.parametrize("kind", KINDS)
def test_sbom_is_valid_and_has_all_files_of_the_lock(kind, devel):
    lock = KINDS[kind]
    found = sbom(lock, SUBJECT, devel=devel and lock.compilation is not None)
    assert is_valid(found)
    hashes = {entry["content"] for component in found["components"] for entry in component.get("hashes", ())}
    assert {file.sha256 for file in files_of(lock)} <= hashes
    assert not [canary for canary in CANARIES if canary in str(found)]
    # the schema's own address, and channels that are not the user's index
    public = {"cyclonedx.org", "download.pytorch.org", "data.pyg.org"}
    assert set(re.findall(r"https?://([^/\"']+)", str(found))) <= public


def test_sbom_of_each_committed_lock_has_every_locked_file():
    for path in LOCKS:
        lock = decode_lock(path.read_bytes())
        found = parts(lock)
        used = lock.compilation if any(package.compiled for package in lock.packages) else None
        wanted = {file.sha256 for file in files_of((lock.base, lock.packages, used))}
        assert {one.content for part in found for one in part.hashes} >= wanted, path
        assert len({part.purl for part in found}) == len(found), path
    assert is_valid(sbom(lock, SUBJECT))


def test_sbom_of_a_devel_image_has_tools_as_required():
    found = sbom(LOCK, SUBJECT, devel=True)
    for name in ("g++-11", "ninja", "nvidia-cuda-toolkit", "nvidia-cublas-cu11"):
        assert component(found, name)["scope"] == "required"
    assert component(found, "wheel")["scope"] == "excluded"


def test_sbom_dependencies_are_the_packages_in_the_image():
    known = {"torch-geometric": PackageFacts(requires=("numpy", "torch", "tqdm", "torch-geometric"))}
    found = sbom(LOCK, SUBJECT, facts=known)
    graph = {entry["ref"]: entry.get("dependsOn", []) for entry in found["dependencies"]}
    inside = {component["bom-ref"] for component in found["components"] if component.get("scope") != "excluded"}
    assert set(graph["image"]) == inside
    needed = graph[component(found, "torch-geometric")["bom-ref"]]
    assert [ref.partition("@")[0] for ref in needed] == ["pkg:pypi/numpy", "pkg:pypi/torch"]


@pytest.mark.parametrize(
    ("licences", "written"),
    [
        (("MIT",), [{"license": {"id": "MIT"}}]),
        (("Apache-2.0 OR BSD-3-Clause",), [{"expression": "Apache-2.0 OR BSD-3-Clause"}]),
        (("NVIDIA Proprietary Software",), [{"license": {"name": "NVIDIA Proprietary Software"}}]),
        (("Copyright (c)\nall of a licence's text", "x" * 121, ""), None),
        # beside another licence an expression is one with it, and a name where that one has no id
        (("MIT OR ISC", "a text\nof lines", "ISC"), [{"expression": "(MIT OR ISC) AND ISC"}]),
        (("MIT OR ISC", "BSD"), [{"license": {"name": "BSD"}}, {"license": {"name": "MIT OR ISC"}}]),
        (
            ("LicenseRef-NVIDIA-CUDA-EULA",),
            [
                {
                    "license": {
                        "name": "LicenseRef-NVIDIA-CUDA-EULA",
                        "url": "https://docs.nvidia.com/cuda/eula/index.html",
                    }
                }
            ],
        ),
    ],
)
def test_sbom_licences_are_ids_expressions_or_names(licences, written):
    found = sbom(LOCK, SUBJECT, facts={"numpy": PackageFacts(licences=licences)})
    assert component(found, "numpy").get("licenses") == written
    assert is_valid(found)


def test_sbom_describes_build_tools_in_devel_images_only():
    known = {"ninja": PackageFacts(licences=("MIT",))}
    assert "MIT" not in str(sbom(LOCK, SUBJECT, facts=known))
    assert component(sbom(LOCK, SUBJECT, facts=known, devel=True), "ninja")["licenses"] == [{"license": {"id": "MIT"}}]


REQUIRES = b"""Requires-Dist: NumPy >=1.20
Requires-Dist: tomli ; python_version < "3.11"
Requires-Dist: typing_extensions ; python_version >= "3.11"
Requires-Dist: pytest ; extra == "test"
Requires-Dist: this is no requirement
"""


def facts_of(lines, python="3.11"):
    texts = {
        "/opt/venv/lib/python3.11/site-packages/Example_Package-1.0.dist-info/METADATA": b"Name: Example_A\n" + lines,
        "/opt/venv/lib/python3.11/site-packages/nameless-1.0.dist-info/METADATA": b"Version: 1.0\n",
        "/usr/share/doc/free/METADATA": b"Name: elsewhere\n",
    }
    ((name, found),) = facts.of_image(texts, python).items()
    assert name == "example-a"
    return found


def test_package_facts_evaluate_markers_for_the_images_python():
    assert facts_of(REQUIRES).requires == ("numpy", "typing-extensions")
    assert facts_of(REQUIRES, "3.9").requires == ("numpy", "tomli")


def test_package_facts_read_the_licence_of_metadata():
    for lines, licences in {
        b"License-Expression: MIT\nLicense: other\n": ("MIT",),
        b"License: Apache 2.0\n": ("Apache-2.0",),
        b"Classifier: Programming Language :: Python\nLicense: UNKNOWN\n": (),
        b"License: other\nClassifier: License :: OSI Approved :: MIT License\n": ("MIT",),
        b"License: MIT License\nClassifier: License :: OSI Approved :: BSD License\n": ("BSD License",),
        b"License: BSD-3-Clause\nClassifier: License :: OSI Approved :: BSD License\n": ("BSD-3-Clause",),
    }.items():
        assert facts_of(lines).licences == licences


def test_sbom_of_debian_packages_names_their_source():
    """By the path in the archive, and by dpkg's own status where the image has it: what is in both is one component."""
    base = bookworm(
        deb("libc6", "2.36-9", path="pool/main/g/glibc/libc6_2.36-9_amd64.deb"),
        deb("bash", "5.2.15-2+b13", path="pool/main/b/bash/bash_5.2.15-2+b13_amd64.deb"),
        deb("python3", "3.11.2-1+b1", path="pool/main/p/python3-defaults/python3_3.11.2-1+b1_amd64.deb"),
        deb("mine", "1.0"),
    )
    lock = changed(base=base, compilation=msgspec.structs.replace(COMPILATION, base=base))
    known = {
        ("python3", "3.11.2-1+b1", "amd64"): SystemPackage(source="python3-defaults", version="3.11.2-1"),
        ("mine", "1.0", "amd64"): SystemPackage(source="mine", version="1.0", licences=("GPL-2.0-or-later", "BZIP")),
        ("bash", "5.0", "amd64"): SystemPackage(source="another", version="5.0"),
    }
    found = sbom(lock, SUBJECT, system=known)
    assert is_valid(found)
    sources = {
        one["name"]: PackageURL.from_string(one["purl"]).qualifiers.get("upstream")
        for one in found["components"]
        if one.get("purl", "").startswith("pkg:deb/") and one.get("scope") != "excluded"
    }
    assert sources == {
        "libc6": "glibc",
        "bash": "bash@5.2.15-2",
        "python3": "python3-defaults@3.11.2-1",
        "mine": "mine",
    }
    assert component(found, "libc6")["purl"].endswith("?arch=amd64&distro=bookworm&upstream=glibc")
    assert component(found, "mine")["licenses"] == [
        {"license": {"id": "GPL-2.0-or-later"}},
        {"license": {"name": "BZIP"}},
    ]
    # provenance goes by the lock alone
    assert "upstream" not in str(built(lock))


def test_sbom_nests_bundled_libraries_in_their_package():
    library = Bundled(
        name="libgfortran",
        version="5.0.0",
        purl="pkg:generic/libgfortran@5.0.0",
        path="/opt/numpy.libs/libgfortran.so",
        sha256="a" * 64,
        licences=("GPL-3.0-or-later WITH GCC-exception-3.1",),
    )
    crate = Bundled(name="openssl", version="3.5.1")
    found = sbom(LOCK, SUBJECT, facts={"numpy": PackageFacts(bundled=(library, crate))})
    assert is_valid(found)
    inside = {one["name"]: one for one in component(found, "numpy")["components"]}
    assert set(inside) == {"libgfortran", "openssl"}
    assert inside["libgfortran"]["evidence"] == {"occurrences": [{"location": library.path}]}
    assert inside["libgfortran"]["hashes"] == [{"alg": "SHA-256", "content": "a" * 64}]
    assert inside["libgfortran"]["licenses"] == [{"expression": library.licences[0]}]
    assert "evidence" not in inside["openssl"]
    assert canonical(sbom(LOCK, SUBJECT, facts={"numpy": PackageFacts(bundled=(library, crate))})) == canonical(found)

"""PyTorch's, PyG's and mirrors' pages as their generators write them, with small wheels of real names on loopback.

Two servers stand for PyTorch's index and the host of its files: which of them answers is up to a test. The forms are
those of pytorch/test-infra (s3_management/manage.py and manage_v2.py) and pyg-team/pyg-lib (upload_final_index.py).
"""

import dataclasses
import hashlib
import urllib.parse

from tests.unit.elfmaker import make_elf
from tests.unit.small_index import CP311
from tests.unit.wheel_server import Fault, WheelServer, small_wheel

LIBRARY = {"torch/lib/libtorch.so": make_elf()}
TORCH = small_wheel("torch", "2.0.1+cu118", tag=CP311, requires=["filelock"], files=LIBRARY)
OTHERS = [small_wheel("torch", "2.0.1+cu118", tag=f"{tag}-{tag}-linux_x86_64") for tag in ("cp39", "cp310")]
SCATTER = small_wheel("torch_scatter", "2.1.2+pt20cu118", tag=CP311)
LIBRARIES = [SCATTER, small_wheel("torch_scatter", "2.1.1+pt20cu118", tag=CP311), small_wheel("pyg_lib", "0.2.0")]
FOLDER, PYG_FOLDER = "/whl/cu118", "/whl/torch-2.0.0+cu118"
PAGE, PYG_PAGE = f"{FOLDER}/torch/", f"{PYG_FOLDER}.html"


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def metadata_of(name):
    """The text beside a wheel: enough of its METADATA."""
    project, version = name.split("-")[:2]
    return f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\nRequires-Dist: filelock\n".encode()


def pytorch_page(files, base, *, hashes=True, metadata=True, times=False, stated=sha256):
    """A project's page; `base` goes before each name, `stated` gives the hash that the page has for a content."""
    lines = []
    for name, content in files:
        target = base + urllib.parse.quote(name) + (f"#sha256={stated(content)}" if hashes else "")
        beside = f"sha256={sha256(metadata_of(name))}"
        more = f' data-dist-info-metadata="{beside}" data-core-metadata="{beside}"' if metadata else ""
        more += ' data-upload-time="2023-05-08T19:13:13Z"' if times else ""
        lines.append(f'    <a href="{target}"{more}>{name}</a><br/>\n')
    text = f"<!DOCTYPE html>\n<html>\n  <body>\n    <h1>Links for torch</h1>\n{''.join(lines)}  </body>\n</html>\n"
    return f"{text}<!--TIMESTAMP 1732808475-->".encode()


def pyg_page(files, base):
    """A page with all libraries of one torch: anchors and nothing else."""
    lines = [f'<a href="{base}{urllib.parse.quote(name)}">{name}</a><br/>\n' for name, _ in files]
    return f"<!DOCTYPE html>\n<html>\n<body>\n{''.join(lines)}</body>\n</html>\n".encode()


def flat_page(files, quoted):
    """A mirror's listing of a folder."""
    lines = [f'<a href="{urllib.parse.quote(name) if quoted else name}">{name}</a>\n' for name, _ in files]
    title = "<title>Index of /pytorch-wheels/cu118/</title>"
    return f"<html><head>{title}</head><body>{''.join(lines)}</body></html>".encode()


@dataclasses.dataclass
class Stand:
    """Two hosts of PyTorch's; PyG's pages are on the first."""

    index: WheelServer
    files: WheelServer

    def new_form(self, **options):
        """The page of 2026: absolute addresses on the other host, times of upload."""
        base = self.files.url(f"{FOLDER}/")
        self.index.bodies[PAGE] = pytorch_page([*OTHERS, TORCH], base, **{"times": True, **options})

    def put_files(self, server, folder=FOLDER, *, metadata=True):
        """The wheels, with what is beside them."""
        for name, content in (*OTHERS, TORCH):
            server.put(f"{folder}/{name}", content)
            if metadata:
                server.put(f"{folder}/{name}.metadata", metadata_of(name))

    def pyg(self, folder=PYG_FOLDER):
        """PyG's page in its form of 2026, and its files."""
        self.index.bodies[f"{folder}.html"] = pyg_page(LIBRARIES, "torch-2.0.0%2Bcu118/")
        for name, content in LIBRARIES:
            self.index.put(f"{PYG_FOLDER}/{name}", content)

    def block(self, server, *paths, status=403):
        """Have a firewall answer for a server, for all that it has or these paths."""
        for path in paths or (*server.bodies, *server.pages):
            server.faults[path] = [Fault(status=status)] * 99

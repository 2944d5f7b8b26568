"""Debian's archives on loopback: lists of few packages, signed by a key of the test's own."""

import dataclasses
import functools
import gzip
import lzma

import pysequoia

from graphcrate.host.disk.cache import Cache
from graphcrate.inputs.bases.archive import SuiteArchive
from tests.made import place
from tests.unit.conftest import Recorder
from tests.unit.wheel_server import WheelServer, sha256


def stanza(name, version="1", **fields):
    values = {"Package": name, "Version": version, "Architecture": "amd64", "Size": "1", "SHA256": "0" * 64}
    values |= {"Description": "words\n Size: of no matter here"}
    values |= {"Filename": f"pool/{name}_{version}_amd64.deb"}
    return "".join(f"{key.replace('_', '-')}: {value}\n" for key, value in {**values, **fields}.items()) + "\n"


@functools.cache
def signer():
    return pysequoia.Tsk.generate("Someone <someone@debian.example>")


def trusted(server, cache, progress, folder, monkeypatch):
    """The archives, with a key that counts as one of Debian's; `folder` is for that key."""
    (folder / "debian-archive-keys.asc").write_text(str(signer().extract_certificate()))
    monkeypatch.setattr("debroot.release.KEYS", folder)
    return Debian(server, signer(), cache, progress)


@dataclasses.dataclass
class Debian:
    """Debian's archives on loopback; `signer` signs their Release files."""

    server: WheelServer
    signer: pysequoia.Tsk
    cache: Cache
    progress: Recorder

    def put(
        self,
        suite,
        lists,
        *,
        root="/debian",
        section="main",
        pack=lzma.compress,
        kind=".xz",
        by_hash=False,
        until="Fri, 01 Jan 2100 00:00:00 UTC",
        date="Sat, 09 Aug 2025 10:00:00 UTC",
        stem="binary-amd64/Packages",
        says=None,
    ):
        """Sign these lists and put them on the server. `says`: fields of the Release file that are others; "": none."""
        data, place = pack("".join(lists).encode()), f"{root}/dists/{suite}"
        name = f"{section}/{stem}{kind}"
        path = f"{name.rpartition('/')[0]}/by-hash/SHA256/{sha256(data)}" if by_hash else name
        fields = self.named(suite, date, until, by_hash) | (says or {})
        release = "".join(f"{field}: {value}\n" for field, value in fields.items() if value)
        release += f"SHA256:\n {self.server.put(f'{place}/{path}', data)} {len(data)} {name}\n"
        signed = pysequoia.sign(self.signer.signer(), release.encode(), mode=pysequoia.SignatureMode.CLEAR)
        self.server.put(f"{place}/InRelease", signed)

    @staticmethod
    def named(suite, date, until, by_hash):
        """Return the first fields of a Release file, as Debian writes them."""
        _, dash, part = suite.partition("-")
        label = "Debian-Security" if part == "security" else "Debian"
        fields = {"Origin": "Debian", "Label": label, "Suite": f"stable{dash}{part}", "Codename": suite}
        return fields | {"Date": date, "Valid-Until": until, "Acquire-By-Hash": "yes" if by_hash else "no"}

    def put_contents(self, suite, *lines, **more):
        """An index of files; each line has a path and where its packages are, separated by spaces."""
        lists = [f"{line}\n" for line in lines]
        self.put(suite, lists, stem="Contents-amd64", **{"pack": gzip.compress, "kind": ".gz", **more})

    def open(self, suite="bookworm", *, without_security=False, **variables):
        mirror = self.server.url("/debian")
        variables = {"DEBIAN_MIRROR": mirror, "DEBIAN_SECURITY_MIRROR": mirror, **variables}
        return SuiteArchive(suite, place(self.cache, variables, self.progress, without_security=without_security))

    def opened(self, *stanzas, updates=(), security=(), **more):
        self.put("bookworm", stanzas, **more)
        self.put("bookworm-updates", updates)
        self.put("bookworm-security", security)
        return self.open()

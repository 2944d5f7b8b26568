"""Small wheels for tests: good ones by default, hostile ones on request."""

import base64
import hashlib
import io
import stat
import zipfile

from graphcrate.model.lock import LockedPackage
from tests.made import file_of

DATE = (2021, 5, 1, 12, 0, 0)


def record_row(path, content, algorithm="sha256"):
    """A line of RECORD."""
    digest = base64.urlsafe_b64encode(hashlib.new(algorithm, content).digest()).decode().rstrip("=")
    quoted = f'"{path}"' if "," in path else path
    return f"{quoted},{algorithm}={digest},{len(content)}"


def entry(name, mode=stat.S_IFREG | 0o644, method=zipfile.ZIP_DEFLATED):
    """A zip entry with these attributes. `ZipInfo` would mend the name, so it is set afterwards."""
    info = zipfile.ZipInfo("replaced", DATE)
    info.filename = info.orig_filename = name
    info.create_system = 3
    info.external_attr = mode << 16
    info.compress_type = method
    return info


def make_wheel(folder, name="pkg", version="1.0", files=None, *, tag="py3-none-any", file_name=None, **options):
    """Write a wheel and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (file_name or f"{name}-{version}-{tag}.whl")
    path.write_bytes(wheel_bytes(name, version, files, tag=tag, **options))
    return path


def wheel_bytes(
    name,
    version,
    files=None,
    *,
    tag="py3-none-any",
    purelib=True,
    executable=(),
    entry_points="",
    method=zipfile.ZIP_DEFLATED,
    algorithm="sha256",
    metadata=None,
    wheel=None,
    record=None,
    unrecorded=None,
    entries=(),
):
    """A wheel. The same arguments give the same bytes.

    `files`: name → bytes. `record` changes RECORD's text, `unrecorded` adds files behind its back, `entries` adds
    (ZipInfo, bytes) pairs as they are, with rows in RECORD.
    """
    info = f"{name}-{version}.dist-info"
    content = dict({f"{name}/__init__.py": b"value = 1\n"} if files is None else files)
    content[f"{info}/METADATA"] = metadata or f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
    about = f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: {str(purelib).lower()}\nTag: {tag}\n"
    content[f"{info}/WHEEL"] = wheel or about.encode()
    if entry_points:
        content[f"{info}/entry_points.txt"] = entry_points.encode()
    rows = [record_row(path, data, algorithm) for path, data in content.items()]
    rows += [record_row(extra.filename, data) for extra, data in entries if not extra.filename.endswith("/")]
    text = "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"
    content[f"{info}/RECORD"] = (record(text) if record else text).encode()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for member, data in {**content, **(unrecorded or {})}.items():
            mode = stat.S_IFREG | (0o755 if member in executable else 0o644)
            archive.writestr(entry(member, mode, method), data)
        for extra, data in entries:
            archive.writestr(extra, data)
    return stream.getvalue()


def locked(path, name="pkg", version="1.0"):
    """The lock's entry for a file."""
    file = file_of(path.name, path.read_bytes())
    return LockedPackage(name=name, version=version, channel="local", file=file)


def at(mark, offset, value):
    """A change of some bytes, counted from a signature: of a local header, the directory, or its end."""

    def change(data):
        place = data.index(b"PK" + mark) + offset
        return data[:place] + value + data[place + len(value) :]

    return change

"""What an sdist says of itself."""

import io
import tarfile

import pytest

from graphcrate.inputs.wheels.sdist import read_sdist
from graphcrate.model.errors import IntegrityError
from tests.unit.wheel_server import small_sdist

FLIT = '[build-system]\nrequires = ["flit_core >=3.2,<4"]\nbuild-backend = "flit_core.buildapi"\n'


def written(tmp_path, **options):
    name, content = small_sdist("demo", "1.0", **options)
    (tmp_path / name).write_bytes(content)
    return read_sdist(tmp_path / name, name)


DYNAMIC = '[project]\nname = "demo"\ndynamic = ["dependencies"]\n'
LISTED = 'tqdm\npsutil>=5.8.0\n\n[:python_version < "3.8"]\nimportlib-metadata\n\n[full]\nwandb\n'


@pytest.mark.parametrize(
    ("sdist", "requires", "build_requires"),
    [
        (
            {
                "pyproject": FLIT + '[project]\nname = "demo"\nversion = "1"\ndependencies = ["numpy", "tqdm>=4"]\n',
                "metadata_requires": ["something-else"],
            },
            ("numpy", "tqdm>=4"),
            ("flit_core >=3.2,<4",),
        ),
        (
            {"pyproject": DYNAMIC, "metadata_requires": ["numpy", 'wandb ; extra == "full"']},
            ("numpy",),
            ("setuptools>=40.8", "wheel"),
        ),
        (
            {"pyproject": DYNAMIC, "requires_txt": LISTED},
            ("tqdm", "psutil>=5.8.0", 'importlib-metadata ; python_version < "3.8"'),
            ("setuptools>=40.8", "wheel"),
        ),
        ({"pyproject": FLIT}, (), ("flit_core >=3.2,<4",)),
    ],
    ids=["static ones bind", "dynamic: PKG-INFO", "an old setuptools: requires.txt", "none"],
)
def test_requirements(tmp_path, sdist, requires, build_requires):
    found = written(tmp_path, **sdist)
    assert (found.requires, found.build_requires) == (requires, build_requires)


@pytest.mark.parametrize("content", [b"", b"not an archive", b"\x1f\x8b\x08\x00broken"])
def test_broken_archives_are_refused(tmp_path, content):
    path = tmp_path / "demo-1.0.tar.gz"
    path.write_bytes(content)
    with pytest.raises(IntegrityError, match=r"demo-1\.0\.tar\.gz is not a usable source archive"):
        read_sdist(path, path.name)


def test_an_archive_without_metadata_is_refused(tmp_path):
    path = tmp_path / "demo-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("demo-1.0/README")
        member.size = 2
        archive.addfile(member, io.BytesIO(b"hi"))
    with pytest.raises(IntegrityError, match="no PKG-INFO"):
        read_sdist(path, path.name)

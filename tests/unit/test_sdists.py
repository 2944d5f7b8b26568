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


def test_static_requirements_bind(tmp_path):
    pyproject = FLIT + '[project]\nname = "demo"\nversion = "1.0"\ndependencies = ["numpy", "tqdm>=4"]\n'
    found = written(tmp_path, pyproject=pyproject, metadata_requires=["something-else"])
    assert found.requires == ("numpy", "tqdm>=4")
    assert found.build_requires == ("flit_core >=3.2,<4",)


def test_dynamic_requirements_are_those_of_pkg_info(tmp_path):
    pyproject = '[project]\nname = "demo"\ndynamic = ["dependencies"]\n'
    found = written(tmp_path, pyproject=pyproject, metadata_requires=["numpy", 'wandb ; extra == "full"'])
    assert found.requires == ("numpy",)


def test_an_old_setuptools_tells_requires_txt_only(tmp_path):
    pyproject = '[project]\nname = "demo"\ndynamic = ["dependencies"]\n'
    listed = 'tqdm\npsutil>=5.8.0\n\n[:python_version < "3.8"]\nimportlib-metadata\n\n[full]\nwandb\n'
    found = written(tmp_path, pyproject=pyproject, requires_txt=listed)
    assert found.requires == ("tqdm", "psutil>=5.8.0", 'importlib-metadata ; python_version < "3.8"')
    assert found.build_requires == ("setuptools>=40.8", "wheel")


def test_a_package_without_requirements(tmp_path):
    assert written(tmp_path, pyproject=FLIT).requires == ()


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

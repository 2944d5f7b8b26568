"""Files that say what a project needs, as people have them: pip's, with all that is written into them."""

import codecs
import os
import shlex
from pathlib import Path

import pytest
from msgspec.structs import replace

from graphcrate.compat.requirements import own, own_packages, own_typed, package_text
from graphcrate.compat.requirements.expected import compared, refuse_others
from graphcrate.compat.requirements.within import Within
from graphcrate.compat.variants.next_steps import NextSteps
from graphcrate.compat.variants.request import BuildRequest
from graphcrate.model.errors import ResolutionError, UsageError
from graphcrate.model.recipe import Expected, FurtherChannel
from graphcrate.resolve.sources import further
from tests.made import refused
from tests.unit.compiled_plans import plain_lock

PAGES = "https://data.pyg.org/whl/torch-2.0.1+cu118.html"
INDEX = "https://download.pytorch.org/whl/cu118"
SHA = "ab" * 32


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mypkg").mkdir()
    (tmp_path / "mypkg/pyproject.toml").write_text(
        '[project]\nname = "mypkg"\n[project.optional-dependencies]\ndev = ["pytest"]\nall = ["mypkg[dev]", "wandb"]\n'
    )

    def reader(text, name="requirements.txt"):
        (tmp_path / name.partition("[")[0]).write_bytes(text if isinstance(text, bytes) else text.encode())
        return own_typed.given([], [tmp_path / name])

    return reader


def test_stack_pages_and_local_builds_in_a_requirements_file_are_recognised(read):
    """The file of a published PyG project (rewritten): all of it is what a stack has."""
    found = read(
        f"--extra-index-url {INDEX}  # for GPU versions of torch\n--find-links {PAGES}\n"
        "torch==2.0.1+cu118\ntorchvision==0.15.2+cu118\ntorch-scatter==2.1.1+pt20cu118\neinops\n"
    )
    assert found.packages == ("torch==2.0.1", "torchvision==0.15.2", "torch-scatter", "einops")
    assert [(one.kind, one.location) for one in found.channels] == [("index", INDEX), ("links", PAGES)]
    assert further.asked(found.channels, ()) == ()
    passed = further.lines(found.channels, ())
    assert [line.rpartition("/")[2] for line in passed] == [
        "requirements.txt:1: download.pytorch.org is passed over: the stack has what it is for",
        "requirements.txt:2: data.pyg.org is passed over: the stack has what it is for",
    ]
    assert [(one.name, one.specifier, one.build) for one in found.expected if not one.binding] == [
        ("torch", "==2.0.1", "cu118"),
        ("torchvision", "==0.15.2", "cu118"),
        ("torch-scatter", "==2.1.1", "pt20cu118"),
    ]


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        (Expected(name="torch", where="r:1", specifier="==2.0.1", build="cu117"), ""),
        (Expected(name="torch", where="r:1", specifier="==2.0.1", build="cu118"), "built for cu117"),
        (Expected(name="torch", where="r:1", specifier="==2.0.1", build="cpu"), "built for cu117"),
        (Expected(name="torch", where="r:1", specifier="==2.4.1"), "written for torch 2.4.1"),
        (Expected(name="python", where="r:1", specifier=">=3.10"), ""),
        (Expected(name="python", where="r:1", specifier="==3.9.*"), "for Python 3.9, and this image has 3.11"),
        (Expected(name="cuda", where="r:1", specifier="==11.3.*"), "for CUDA 11.3, and this image has 11.7"),
        (Expected(name="absent", where="r:1", specifier="==1"), ""),
        (Expected(name="cuda", where="r:1", build="cpu"), "for the CPU, and this image has CUDA 11.7"),
    ],
)
def test_pins_of_stack_packages_are_compared_with_the_lock(expected, said):
    lines = compared([expected], plain_lock())
    assert len(lines) == bool(said)
    assert said in "".join(lines)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"-f {PAGES}\ntorch-scatter\n", [("cuda", "==11.8.*", "")]),
        (f"--extra-index-url {INDEX}\ntorch==2.0.1\n", [("cuda", "==11.8.*", "")]),
        ("--index-url https://download.pytorch.org/whl/cpu\ntorch\n", [("cuda", "", "cpu")]),
        ("-f https://pytorch-geometric.com/whl/torch-1.7.0+cu92.html\neinops\n", [("cuda", "==9.2.*", "")]),
        (f"-f {PAGES}\ntorch==2.0.1+cu117\n", [("torch", "==2.0.1", "cu117")]),
        ("--index-url https://a.example/cu118\neinops\n", []),
        ("torch-scatter==latest+cu111\n", [("torch-scatter", "", "cu111")]),
    ],
)
def test_cuda_of_pytorchs_and_pygs_pages_is_compared_where_no_version_names_one(read, text, found):
    said = [(one.name, one.specifier, one.build) for one in read(text).expected if not one.binding]
    assert said == found


def test_wheel_of_pygs_page_by_its_older_name_is_the_stacks(read):
    wheel = "torch-1.9.0%2Bcu111/torch_scatter-2.0.8-cp39-cp39-linux_x86_64.whl"
    assert read(f"https://pytorch-geometric.com/whl/{wheel}\n").packages == ("torch-scatter==2.0.8",)


def test_extras_of_a_git_repository_are_refused_by_name(read):
    with pytest.raises(UsageError, match=r"the extras of tools, logger, are not read of a repository") as error:
        read("tools[logger] @ git+https://a.example/tools@v1\n")
    assert error.value.next_step.startswith("tools @ git+https://a.example/tools@v1 without them")


def test_pipe_in_place_of_a_list_is_refused_in_a_recipes_folder(tmp_path):
    os.mkfifo(tmp_path / "more.txt")
    (tmp_path / "requirements.txt").write_text("-r more.txt\n")
    with pytest.raises(UsageError, match="is a pipe, and no file"):
        package_text.read_requirements(tmp_path / "requirements.txt", Within(tmp_path.resolve()))


def test_pins_that_differ_from_the_stack_are_refused_with_lines_and_command(read, tmp_path):
    request = BuildRequest(name="torch", cuda="11.8", requirements=(Path("r.txt"),), words=("tqdm",))
    text = "einops\ntorch==2.1.0+cu118\ntorch-geometric==2.0.4\ntorchvision==0.16\n"
    with refused(ResolutionError, "torch==2.1.0 (", "requirements.txt:2) and torch-geometric==2.0.4 (") as caught:
        refuse_others(read(text).expected, plain_lock(), NextSteps(request).with_packages)
    typed = "make image STACK=torch CUDA=11.8 WITH='tqdm torch torch-geometric' REQUIREMENTS=r.txt"
    assert shlex.split(caught.value.next_step.partition("    ")[0]) == shlex.split(typed)
    found = own_typed.given(["torch torch-geometric"], [tmp_path / "requirements.txt"])
    assert found.packages == ("torch", "torch-geometric", "einops", "torchvision==0.16")
    refuse_others(found.expected, plain_lock(), NextSteps(request).with_packages)
    (line,) = compared(found.expected, plain_lock())
    assert "torch 2.1.0 (here 2.0.1) and torch-geometric 2.0.4 (here 2.3.1)" in line


def test_pins_that_another_variant_has_are_refused_with_its_command_first(read):
    def elsewhere(fits):
        return "make image CUDA=12.1" if fits(replace(lock, packages=packages)) else ""

    lock, asked = plain_lock(), read("torch>=2.1\ntorch-geometric\n").expected
    newer = {"torch": "2.3.1"}
    packages = tuple(replace(each, version=newer.get(each.name, each.version)) for each in lock.packages)
    with refused(ResolutionError, "torch>=2.1 (") as caught:
        refuse_others(asked, lock, " ".join, elsewhere)
    assert caught.value.next_step.startswith("make image CUDA=12.1; or torch ")
    packages = lock.packages
    with refused(ResolutionError, "torch>=2.1 (") as caught:
        refuse_others(asked, lock, " ".join, elsewhere)
    assert caught.value.next_step.startswith("torch    takes the stack's in its place; ")


def test_pins_that_differ_from_the_stack_are_all_named():
    lock, names = plain_lock(), [f"torch-{number}" for number in range(9)]
    lock = replace(lock, packages=tuple(replace(lock.packages[0], name=name) for name in names))
    expected = [Expected(name=name, where=f"r:{name}", specifier="==0", binding=True) for name in names]
    with refused(ResolutionError, *(f"{name}==0 (r:{name})" for name in names)):
        refuse_others(expected, lock, " ".join)


def test_command_line_package_overrides_its_line_in_a_requirements_file(read, tmp_path):
    read(f"numpy==1.21.2 --hash=sha256:{SHA}\neinops\n")
    found = own_typed.given(["numpy<2"], [tmp_path / "requirements.txt"])
    assert (found.packages, found.hashes) == (("numpy<2", "einops"), {})
    assert [(one.name, one.specifier) for one in found.expected if not one.binding] == [("numpy", "==1.21.2")]
    (tmp_path / "mine.toml").write_text('extends = "pyg"\npip = ["numpy<2"]\nrequirements = "requirements.txt"\n')
    assert own.load(tmp_path / "mine.toml")[1].packages == ("numpy<2", "einops")


def test_stack_pins_of_a_uv_lock_are_reported_in_one_line():
    names = ("torch-geometric", "nvidia-cublas-cu11", "torch")
    lines = compared([Expected(name=name, where=f"uv.lock:{name}", specifier="==9") for name in names], plain_lock())
    assert lines == ["uv.lock: it is written for torch 9 (here 2.0.1) and torch-geometric 9 (here 2.3.1)"]


@pytest.mark.parametrize(
    "text",
    [
        codecs.BOM_UTF8 + b"einops\r\nlightning==2.1\r\n",
        codecs.BOM_UTF16_LE + "einops\r\nlightning==2.1\r\n".encode("utf-16-le"),
        codecs.BOM_UTF16_BE + "einops\nlightning==2.1".encode("utf-16-be"),
        b"einops\r\n# a comment\r\n\r\nlightning \\\r\n  ==2.1 # pinned\r\n",
    ],
)
def test_requirements_file_with_bom_or_crlf_is_read(read, text):
    assert [one.replace(" ", "") for one in read(text).packages] == ["einops", "lightning==2.1"]


def test_requirements_for_another_platform_are_dropped(read):
    found = read(
        "pywin32 ; sys_platform == 'win32'\ntorch==2.4.1 ; sys.platform == 'darwin'\neinops ; sys_platform == 'linux'\n"
        "importlib_metadata ; python_version < '3.10'\n"
    )
    assert [own_packages.name_of(one) for one in found.packages] == ["einops", "importlib-metadata"]


def test_pip_freeze_pins_of_torchs_libraries_are_only_compared(read):
    """The lines of `pip freeze` beside torch; nvidia-dali and a bare name are the user's own."""
    found = read(
        "torch==2.3.1\nnvidia-cublas-cu12==12.1.3.1\ntriton==2.3.1\nnvidia-dali-cuda120==1.40\nnvidia-nccl-cu12\n"
    )
    assert found.packages == ("torch==2.3.1", "nvidia-dali-cuda120==1.40", "nvidia-nccl-cu12")
    assert [(one.name, one.specifier) for one in found.expected if not one.binding] == [
        ("nvidia-cublas-cu12", "==12.1.3.1"),
        ("triton", "==2.3.1"),
    ]


def test_url_of_a_wheel_on_pygs_page_is_the_package(read):
    page = "https://data.pyg.org/whl/torch-2.0.0%2Bcu118/torch_scatter-2.1.1%2Bpt20cu118-cp311-cp311-linux_x86_64.whl"
    assert read(f"{page}\ntorch-sparse @ {page.replace('scatter', 'sparse')}\n").packages == (
        "torch-scatter",
        "torch-sparse",
    )


def test_requirements_file_gives_hashes_and_project_extras(read, tmp_path):
    found = read(f"einops==0.7 --hash=sha256:{SHA} --hash=sha256:{'cd' * 32}\n-e ./mypkg[all]\n")
    assert found.packages == ("einops==0.7", str(tmp_path.resolve() / "mypkg"), "wandb", "pytest")
    assert found.hashes == {"einops": (SHA, "cd" * 32)}


def test_irrelevant_pip_options_are_skipped_with_a_note(read):
    found = read("--prefer-binary\n--trusted-host host.example\n--only-binary=:all: --require-hashes\neinops\n")
    assert found.packages == ("einops",)
    assert [note.rpartition("/")[2].split(" is ")[0] for note in found.notes] == [
        "requirements.txt:1: --prefer-binary",
        "requirements.txt:2: --trusted-host",
        "requirements.txt:3: --only-binary",
        "requirements.txt:3: --require-hashes",
    ]


def test_index_and_links_options_become_channels_without_passwords(read, tmp_path):
    (tmp_path / "wheels").mkdir()
    found = read(
        "-i https://me:secret@own.example/simple?token=secret\n-f https://data.dgl.ai/wheels/cu118/repo.html\n"
        "--find-links=./wheels --extra-index-url http://plain.example/x\n"
        "--index-url https://pypi.tuna.tsinghua.edu.cn/simple\n--extra-index-url https://index.example/simple/\ndgl\n"
    )
    asked = further.asked(found.channels, ["https://index.example/simple"])
    assert [(one.kind.value, one.title) for one in asked] == [
        ("index", "own.example"),
        ("links", "data.dgl.ai"),
        ("folder", "the folder of wheels"),
        ("index", "plain.example"),
    ]
    lines = "\n".join(further.lines(found.channels, ["https://index.example/simple"]))
    assert "secret" not in lines
    for told in ("own.example is a channel", "without encryption", "MIRROR=tuna", "index.example is passed over"):
        assert told in lines
    recorded = own_packages.recorded(found)
    assert (recorded.channels, recorded.notes, recorded.expected, recorded.hashes) == ((), (), (), {})


def test_repeated_index_is_one_channel():
    one = FurtherChannel(kind="index", location="https://own.example/simple", where="a:1")
    assert len(further.asked([one, one], ())) == 1


def test_option_behind_a_package_is_a_line_of_its_own(read):
    found = read(
        "torch-ema>=0.3 -f https://pages.example/a.html\neinops --extra-index-url=https://own.example/simple\n"
    )
    assert found.packages == ("torch-ema>=0.3", "einops")
    assert [(each.kind, each.location) for each in found.channels] == [
        ("links", "https://pages.example/a.html"),
        ("index", "https://own.example/simple"),
    ]


def test_freeze_of_a_conda_environment_is_taken_by_names_and_said_once(read):
    found = read(
        "mkl-fft @ file:///croot/mkl_fft_1695058164594/work\n"
        "PyYAML @ file:///home/conda/feedstock_root/build_artifacts/pyyaml_1695373436676/work\n"
        "idna @ file:///b/abs_xx/croot/idna/work\npkg-resources==0.0.0\n",
    )
    assert found.packages == ("mkl-fft", "PyYAML", "idna")
    assert len(found.notes) == 2
    assert "pkg-resources==0.0.0 is passed over" in found.notes[0]
    assert found.notes[1].endswith("taken by name in any version: mkl-fft, PyYAML and idna")


def test_options_that_an_image_does_not_need_are_passed_over_with_what_is_done_instead(tmp_path):
    (tmp_path / "requirements.txt").write_text("--pre\n--no-binary :all:\n--no-cache-dir\neinops\n")
    found = own_typed.given([], [tmp_path / "requirements.txt"])
    assert found.packages == ("einops",)
    words = ("--pre is passed over: final", "--no-binary is passed over: what has", "--no-cache-dir is passed over")
    assert all(word in note for word, note in zip(words, found.notes, strict=True))


def test_note_on_lines_for_other_systems_names_all_of_them(tmp_path):
    names = [f"package{number}" for number in range(9)]
    path = tmp_path / "requirements.txt"
    path.write_text("einops\n" + "".join(f"{name} ; sys_platform == 'win32'\n" for name in names))
    (note,) = package_text.read_requirements(path).notes
    assert [name for name in names if name not in note] == []


def test_file_that_is_not_there_is_named_once_and_without_a_number(tmp_path):
    with refused(UsageError, f"there is no file {tmp_path}/environment.yml"):
        own_typed.given([], [tmp_path / "environment.yml"])

"""The bench beside Docker, buildah and Apptainer: its table, and what it has the others build."""

import re

from bench import peer_files, peers
from bench.conversion import used
from bench.page import PAGE
from bench.peer_files import FILES, SECRETS, BuildContext
from bench.peer_ways import Cost, Step, last_words

LOCK = {
    "base": {"suite": "bookworm", "packages": [{"name": "libc6"}, {"name": "python3"}]},
    "packages": [
        {"name": "torch", "version": "2.0.1"},
        {"name": "torch-scatter", "version": "2.1.2", "compiled": True},
    ],
    "compilation": {"architectures": ["7.0", "8.0+PTX"]},
}
TESTED = Step("graphcrate, `make image`", "OCI layout, tested", "image", Cost(90.0, 120.0, 2_400_000_000, 9, 9))
OURS = Step("graphcrate, `--no-smoke`", "OCI layout", "image", Cost(60.0, 80.0, 2, 9, 9), measure=True)
SIF = Step("… and `convert --to sif`", "SIF", "sif", Cost(80.0, 100.0, 2, 9, 9), measure=True)
STORED = Step("Docker 28", "an image in its store", "image", Cost(45.0, 70.4, None, 5_000_000_000, 7_500_000_000))
BUILT = Step("Apptainer 1.4.5", "SIF", "sif", Cost(400.0, 500.0, 2, 9, 9))
FAILED = Step("buildah", "", "image", None, "buildah ended with 125: no space left")


def test_peers_are_compared_with_our_untested_way_to_the_same_end():
    steps = [TESTED, OURS, SIF, STORED, BUILT, FAILED]
    assert [peers.ratio(step, steps) for step in steps] == ["1.5", "1.0", "1.0", "0.8", "5.0", ""]
    assert peers.ratio(STORED, [STORED]) == "", "a trial without ours"


def test_peer_table_has_a_row_per_step_and_says_why_one_failed():
    lines = peers.table([TESTED, OURS, STORED, FAILED]).splitlines()
    assert lines[0].startswith("|  | gives | wall | processor | wall to ours |")
    assert lines[2].startswith("| graphcrate, `make image` | OCI layout, tested | 90 s | 120 s | 1.5 | 2.40 GB |")
    assert lines[-2] == "| Docker 28 | an image in its store | 45 s | 70 s | 0.8 |  | 5.00 GB | 7.50 GB |"
    assert lines[-1].startswith("| buildah | not measured: buildah ended with 125: no space left |  |")
    assert len({line.count("|") for line in lines}) == 1
    assert last_words("first\n  a | b\n\n") == "a / b"
    assert last_words("\n") == "without a word"


def test_peer_sections_have_places_on_the_page():
    text = PAGE.read_text(encoding="utf-8")
    for section in (peers.SECTION, peers.COMPILING):
        assert text.count(section.begin) == text.count(section.end) == 1
    assert peers.settings(compiling=False) == ["image", "CUDA=11.8", "EXTENSIONS=none"]
    assert peers.settings(compiling=True) == ["image", "CUDA=11.8"]


def test_peers_get_the_packages_of_the_lock():
    assert peer_files.wheels(LOCK) == ["torch==2.0.1"]
    assert peer_files.sdists(LOCK) == ["torch-scatter==2.1.2"]
    assert peer_files.base_packages(LOCK) == ["libc6", "python3"]
    commands = peer_files.compile_commands(LOCK)
    assert "TORCH_CUDA_ARCH_LIST='7.0;8.0+PTX' MAX_JOBS=$(nproc)" in commands
    assert commands.endswith("--no-binary :all: torch-scatter==2.1.2\n")


def test_this_machines_settings_reach_a_build_and_no_image_keeps_them():
    environment = {"https_proxy": "http://a b:3128", "PIP_INDEX_URL": "https://index.example/simple", "HOME": "/root"}
    assert peer_files.machine_settings(environment).splitlines() == [
        f"export PIP_CERT={SECRETS}/authorities",
        "export PIP_INDEX_URL=https://index.example/simple",
        f"export SSL_CERT_FILE={SECRETS}/authorities",
        "export UV_DEFAULT_INDEX=https://index.example/simple",
        "export https_proxy='http://a b:3128'",
    ]
    for compiling in (False, True):
        text = peer_files.dockerfile(compiling=compiling)
        assert re.findall(r"type=secret,id=(\w+)", text) == ["machine", "authorities"]
        assert not re.search(r"^(ARG|COPY (?!--from)|ENV (?!PATH=))", text, re.MULTILINE)


def test_compiler_is_in_a_stage_of_its_own(tmp_path):
    plain, compiling = (BuildContext(tmp_path, bases) for bases in (("base",), ("base", "compiler")))
    assert re.findall(r"^FROM (\S+)", peer_files.dockerfile(compiling=False), re.MULTILINE) == ["localhost/base"]
    stages = re.findall(r"^FROM (\S+)", peer_files.dockerfile(compiling=True), re.MULTILINE)
    assert stages == ["localhost/compiler", "localhost/base"]
    assert re.findall("^Stage: (.*)$", peer_files.definition(plain, compiling=False), re.MULTILINE) == ["base"]
    text = peer_files.definition(compiling, compiling=True)
    assert re.findall("^Stage: (.*)$", text, re.MULTILINE) == ["compiler", "base"]
    assert text.index(f"sh {FILES}/install.sh") < text.index("%files from compiler")


def test_hard_links_count_once_on_the_disk(tmp_path):
    (tmp_path / "folder").mkdir()
    file = tmp_path / "file"
    file.write_bytes(b"x" * 100_000)
    alone = used(tmp_path)
    (tmp_path / "folder/link").hardlink_to(file)
    (tmp_path / "folder/symbolic").symlink_to(file)
    assert alone >= 100_000
    assert used(tmp_path) < 2 * 100_000

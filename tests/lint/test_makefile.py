"""Settings of make: a misspelt one is refused with the nearest, and what programs read from the environment passes.

Each `make` of the pages comes to a command of ours that its parser takes, and each setting there changes it.
"""

import functools
import os
import re
import shlex
import shutil
import subprocess

import pytest

from tests import ROOT
from tests.commands import commands, objection, parts
from tests.unit.house.test_commands import PAGES

#: has no say in what is built, but in how it is prepared
PREPARING = ("PYTHON",)


@functools.cache
def make(*words):
    """The commands that make would run; none is run."""
    prepared = ("-o", ".venv/ready-run", "-o", ".venv/ready-dev")
    done = subprocess.run(["make", "-n", *prepared, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("word", "what"),
    [
        ("CUDDA=12.1", "CUDDA is not a setting; the nearest is CUDA."),
        ("cuda=12.1", "cuda is not a setting; the nearest is CUDA."),
        ("FLAVOR=devel", "FLAVOR is not a setting; the nearest is FLAVOUR."),
        ("ZZZ=1", "ZZZ is not a setting. There are ACCOUNT AGAIN ALL ALLOW_CPU_ONLY"),
    ],
)
def test_a_misspelt_setting_is_refused(word, what):
    code, text = make("list", word)
    assert code == 2
    assert what in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("image", "CUDA=11.8", "WITH=einops", "rich"), 'rich is no goal of make: write WITH="einops rich"'),
        (("image", "APT=git", "vim", "less"), 'vim is no goal of make: write APT="git vim less"'),
        (("image", "CUDA=", "11.8"), '11.8 is no goal of make: write CUDA="11.8"'),
        (("imgae", "CUDA=11.8"), "imgae is no goal of make; the nearest is: make image."),
        (("sqsh", "STACK=glt"), "sqsh is no goal of make: make image, then ./build.py convert glt --to sqsh"),
        (("tar",), "tar is no goal of make: make image, then ./build.py convert pyg --to oci-archive"),
        (("zzzzz",), "zzzzz is no goal of make. There are help image"),
        (("a'b; touch x",), "is no goal of make"),
        (("image", "PYTHON=3.10"), "PYTHON=3.10 is no program: it is the Python that runs graphcrate itself"),
    ],
)
def test_a_goal_or_python_that_is_none_is_refused_before_any_recipe(words, said):
    code, text = make(*words)
    assert (code, said in text, "typed=" in text) == (2, True, False), text
    assert not (ROOT / "x").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("COMPRESSION=xz",), "COMPRESSION is gzip or zstd, and not xz"),
        (("COMPRESSION=xz", "PLAN=yes"), "COMPRESSION is gzip or zstd, and not xz"),
    ],
)
def test_form_that_no_image_could_have_is_refused_before_one_is_built(words, said):
    code, text = make("sif", *words)
    assert (code, said in text, "typed=" in text) == (2, True, False), text


def test_plan_of_a_sif_is_asked_with_the_kernel_that_mounts_it():
    assert "--pack '3.10' --plan" in make("sif", "KERNEL=3.10", "PLAN=yes")[1]


def test_program_is_told_the_goal_and_the_settings_that_were_typed():
    code, text = make("image", "CUDA=11.8", 'WITH=it\'s a "b" $$x', "GPU=v100", "AGAIN=")
    assert code == 0
    words = shlex.split(text.replace("\\\n", " "))
    option = words[words.index("-X") + 1].removeprefix("typed=")
    goal, settings = shlex.split(option)[:2], set(shlex.split(option)[2:])
    assert (goal, settings) == (["make", "image"], {"CUDA=11.8", 'WITH=it\'s a "b" $x', "GPU=v100", "AGAIN="})


def test_program_is_told_the_folder_of_make_by_which_it_was_called(tmp_path):
    def told(*options):
        words = ["make", "-n", "-o", ".venv/ready-run", *options, "sif", "CUDA=11.8"]
        environment = {**os.environ, "PWD": str(tmp_path)}
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        words = shlex.split(done.stdout.replace("\\\n", " "))
        return shlex.split(words[words.index("-X") + 1]), words[words.index("-X") + 2]

    assert told("-C", ROOT) == (["typed=make", "-C", str(ROOT), "sif", "CUDA=11.8"], f"{ROOT}/build.py")
    (tmp_path / "a b").symlink_to(ROOT)
    assert told("-C", "a b") == (["typed=make", "-C", str(ROOT), "sif", "CUDA=11.8"], f"{ROOT}/build.py")


@pytest.mark.parametrize(
    ("words", "step"),
    [
        (
            ("image", "CUDA=11.8", "GPU=v100", "CHANNEL=x"),
            "make image CUDA=11.8 GPU=v100 CHANNEL=pytorch    (or make image CUDA=11.8 GPU=v100)",
        ),
        (
            ("sif", "WITH=it is", "CHANNEL=x", "KERNEL=3.10"),
            "make sif CUDA=11.8 CHANNEL=pytorch 'WITH=it is' KERNEL=3.10    (or",
        ),
        (("lock", "STACK=torch", "CHANNEL=x", "CUDA=cpu"), "make lock STACK=torch CUDA=cpu CHANNEL=local    (or"),
    ],
)
def test_error_of_a_goal_ends_with_the_goal_and_its_settings_and_one_changed(words, step):
    done = subprocess.run(
        ["make", "-o", ".venv/ready-run", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, f"next:  {step}" in done.stderr) == (2, True), done.stderr


def test_sif_over_a_file_that_is_not_there_ends_before_the_image_is_planned():
    words = ["make", "-o", ".venv/ready-run", "sif", "CUDA=11.8", "OVER=nothing.sif"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, "there is no file 'nothing.sif'" in done.stderr) == (2, True), done.stderr
    assert "plan for" not in done.stderr


def test_every_goal_with_a_help_line_is_known():
    helped = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(helped) > 15
    for goal in helped:
        assert "is no goal" not in make(goal)[1]


@pytest.mark.parametrize(("words", "left"), [((), ["dist/pyg/1/passes/a.json", "dist/trials/b"]), (("ALL=yes",), [])])
def test_clean_names_what_goes_and_keeps_proofs_unless_all_is_said(tmp_path, words, left):
    shutil.copyfile(ROOT / "Makefile", tmp_path / "Makefile")
    for name in ("dist/pyg/1/passes/a.json", "dist/pyg/1/oci/index.json", "dist/trials/b", ".venv/x", "mine"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "dist/pyg/cpu").symlink_to("1")
    done = subprocess.run(["make", "clean", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.is_dir() or path.is_symlink()}
    assert files == {"Makefile", "mine", *left}
    assert (done.returncode, "removing" in done.stderr, "\tdist" in done.stderr) == (0, True, True), done
    assert ("make clean ALL=yes" in done.stderr) == bool(left)


def test_settings_and_the_environments_variables_pass():
    words = ("CUDA=11.8", "WITH=dgl==2.1 x>=3", "SLIM=yes", "PYTHON=python3", "DEBIAN_MIRROR=http://x", "https_proxy=y")
    assert make("list", "image", *words)[0] == 0


def test_what_pages_type_comes_to_commands_that_are_taken():
    typed = {
        tuple(words[1:]): one
        for page in PAGES
        for one in commands(page)
        for words in parts(one.text)
        if words[0] == "make"
    }
    typed = {words: where for words, where in typed.items() if "ETC" not in words and not words[0].isupper()}
    assert len(typed) > 30
    for words, where in typed.items():
        code, text = make(*words)
        assert code == 0, f"{where}\n{text}"
        for line in re.findall(r"build\.py (.*?)\)?(?: *&&|$)", text, re.MULTILINE):
            assert objection(["./build.py", *shlex.split(line)]) == "", f"{where}\n{line}"
        for setting in (word for word in words if "=" in word and word.partition("=")[0] not in PREPARING):
            without = make(*(word for word in words if word != setting))
            assert without != (code, text), f"{where}\n{setting} changes nothing"


@pytest.mark.parametrize("target", ["image", "sif", "publish"])
def test_a_plan_is_printed_and_nothing_is_built(target):
    for words, planned in ((("PLAN=yes",), True), (("PLAN=no",), False), ((), False)):
        code, text = make(target, "CUDA=11.8", "TO=/x", *words)
        (image,) = [line for line in text.splitlines() if " image 'pyg'" in line]
        assert (code, image.rstrip().endswith("--plan")) == (0, planned), text
        assert ("convert" in text or 'publish "$image"' in text) == (target != "image" and not planned), text


def test_what_builds_every_image_has_no_plan():
    code, text = make("images", "PLAN=yes")
    assert (code, "make image CUDA=11.8 PLAN=yes" in text) == (2, True), text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("lock", "CUDA=13.0", "PLAN=yes"), "PLAN does nothing in make lock, which takes CUDA ARCH STACK"),
        (("lock", "GPU=v100"), "GPU does nothing in make lock, which takes"),
        (("render", "CUDA=13.0"), "CUDA does nothing in make render."),
        (("list", "STACK=glt"), "STACK does nothing in make list."),
        (("serve", "GPU=v100"), "GPU does nothing in make serve, which takes LISTEN"),
    ],
)
def test_setting_that_a_goal_does_not_take_is_refused_before_anything_runs(words, said):
    code, text = make(*words)
    assert (code, said in text, "typed=" in text) == (2, True, False), text


def test_setting_of_another_goal_on_the_line_is_taken():
    assert make("list", "sif", "CUDA=11.8")[0] == 0
    assert make("lock", "CUDA=11.8", "ARCH=arm64", "CHANNEL=pypi", "TRUST_PATHS=yes", "WITHOUT_SECURITY=yes")[0] == 0
    assert make("serve", "LISTEN=127.0.0.1:1")[0] == 0


def test_what_builds_every_image_takes_a_shared_cache():
    text = make("images", "CACHE=/site/cache", "CACHE_TRUST=cosign.pub", "CACHE_KEY=cosign.key")[1]
    assert "--cache '/site/cache' --cache-trust 'cosign.pub' --cache-key 'cosign.key'" in re.sub(" +", " ", text)


def test_how_a_build_goes_on_and_what_it_says_are_settings():
    text = make("sif", "KEEP_GOING=yes", "QUIET=yes")[1]
    assert "--keep-going --quiet" in text
    assert text.rstrip().endswith("--quiet"), "of the conversion, too"


def test_a_sif_is_packed_while_its_image_is_built_and_an_image_alone_is_not():
    packs = {words: re.findall(r"--pack '?([\w.]+)", make("sif", *words)[1]) for words in ((), ("KERNEL=5.14",))}
    packs["zstd",] = re.findall(r"--pack '?([\w.]+)", make("sif", "COMPRESSION=zstd", "KERNEL=5.14")[1])
    assert packs == {(): ["auto"], ("KERNEL=5.14",): ["5.14"], ("zstd",): ["zstd"]}
    assert "--pack" not in make("image")[1]


def test_image_of_a_dockerfile_is_made_of_the_recipe_that_is_written():
    code, text = make("image", "FROM=Dockerfile", "PLAN=yes")
    assert code == 0
    assert re.search(
        r"recipe=\$\(\S+ -E -s .*?build\.py adopt 'Dockerfile' *\) && "
        r"\S+ -E -s .*?build\.py image \"\$recipe\" .*--plan",
        text,
    )
    assert "adopt 'Dockerfile' --output 'mine.toml'" in make("image", "FROM=Dockerfile", "RECIPE=mine.toml")[1]
    code, text = make("sif", "FROM=Dockerfile")
    assert (code, "FROM is for make image" in text) == (2, True)

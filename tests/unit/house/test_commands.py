"""Every command of the pages is typed by a test, taken by its program's own parser, or in a table that says why not."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests import ROOT
from tests.commands import BLOCK, ELSEWHERE, ERRORS, OURS, SHELL, commands, objection, parts, written
from tests.engines.typist import untyped

FOLDERS = ("docs", "docs/tutorials", "docs/dev", "docs/zh", "docs/zh/tutorials")
PAGES = ["README.md", "CONTRIBUTING.md", "examples/README.md", ERRORS, "dist/docs/commands.md"]
PAGES += [str(path.relative_to(ROOT)) for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.md"))]
#: page → tests that type its blocks of `sh` in real images (test_chinese.py holds Chinese pages to these)
TYPED = {
    "README.md": "engines/test_readme",
    "docs/cache.md": "engines/test_site_cache",
    "docs/customize.md": "engines/test_customize",
    **{
        f"docs/{name}.md": "engines/test_short_pages"
        for name in ("run", "doctor", "images", "dockerfile", "checks", "publish", "requirements")
    },
    "docs/notebooks.md": "engines/test_notebook",
    "docs/runtimes.md": "engines/test_runtimes_page",
    "docs/slurm.md": "engines/test_slurm_builds",
    "docs/test.md": "engines/test_runtimes_page",
    "docs/tutorials/dna.md": "engines/test_tutorials",
    "docs/tutorials/dgx2.md": "engines/test_tutorials",
    "docs/tutorials/multi-node.md": "engines/test_multi_node",
    "docs/tutorials/network.md": "engines/test_mpi",
    "docs/tutorials/glt.md": "engines/glt_pages",
    "docs/tutorials/pai.md": "engines/glt_pages",
}
#: headings whose blocks another test has
BY_ITSELF = {
    "docs/tutorials/glt.md": ["Get the image"],  # test_stacks
    "docs/tutorials/pai.md": ["Get the image", "Send it to a registry", "Train"],  # test_pai_examples
}


@pytest.mark.parametrize("page", PAGES)
def test_page_commands_parse_with_their_program(page):
    for command in commands(page):
        for words in parts(command.text):
            said = objection(words, is_mention=not command.language)
            assert said == "", f"{command}\n{shlex.join(words)}: {said}"


def test_invalid_page_command_has_an_objection():
    wrong = {
        "./build.py imge pyg": "there is no command 'imge'",
        "./build.py convert pyg:1 --to sif --kernle 5.14": "--kernle",
        "./build.py convert pyg:1 --to sfi": "'sfi' is not one of",
        "make sif CUDDA=11.8": "make has no setting CUDDA",
        "make imge CUDA=11.8": "make has no target imge",
        "srun -p a100 singularity run --nv pyg.sif python dna.py --epoch5 1": "--epoch5",
        "python /opt/graphcrate/examples/dan.py": "images have no /opt/graphcrate/examples/dan.py",
        'docker load --input "$(./build.py convert pyg:1 --too docker)"': "--too",
        "python train.py 2>&1 | tail -100 | python3 doctor.py --explian -": "--explian",
        "torchrun --standalone /opt/graphcrate/examples/multi_node.py --hiden 3": "--hiden",
        "./build.py job a.sif --runtime docker --command 'python /opt/graphcrate/examples/dna.py --epocs 3'": "--epocs",
        "./build.py run pyg:1 -- python /opt/graphcrate/suites/ops.py --limits 3": "--limits",
        "conda install pyg": "no test knows 'conda'",
    }
    for text, said in wrong.items():
        assert said in "".join(objection(words) for words in parts(text)), text
        assert all(objection(words) == "" for words in parts("./build.py list && make list")), text


def test_commands_table_has_no_unused_rows():
    typed = {words[0] for page in PAGES for command in commands(page) for words in parts(command.text)}
    assert sorted((ELSEWHERE.keys() | SHELL) - typed) == []


def test_page_blocks_are_sh_bash_toml_or_plain():
    """`sh`: by a test of engines; `bash`: taken by parsers; none: what a program prints."""
    for page in PAGES:
        blocks = BLOCK.findall(written(page))
        assert {language for language, _ in blocks} <= {"sh", "bash", "toml", ""}, page
        for language, text in blocks:
            assert language or not re.match(rf"(?:{'|'.join(map(re.escape, [*OURS, *ELSEWHERE]))}|make) ", text), page
    named = {page for page in PAGES if "/zh/" not in page and "```sh\n" in written(page)}
    assert named == set(TYPED)


@pytest.mark.parametrize("page", TYPED)
def test_sh_blocks_of_a_page_are_typed_by_an_engine_test(page):
    left = untyped(ROOT / page, ROOT / "tests" / f"{TYPED[page]}.py")
    assert sorted(left) == BY_ITSELF.get(page, [])


def machines():
    """Words for `explain` of all commands that name a machine: GPUs, a driver, a target."""
    found = {}
    for command in (command for page in PAGES for command in commands(page)):
        for words in parts(command.text):
            text = shlex.join(words)
            given = re.findall(r"(?:--(gpu|driver|target|kernel) |(GPU|DRIVER|TARGET)=)([\w.,/-]+)", text)
            known = {(one or other).lower(): value for one, other, value in given if not value.isupper()}
            stack = re.search(r"STACK=(\w+)|(?:image|explain|check) (?:\S*/)?(pyg|glt|torch)\b", text)
            if known and words[0] in (*OURS, "make") and known.get("target") != "mine.toml":
                found[stack[1] or stack[2] if stack else "", *sorted(known.items())] = str(command)
    return found


def test_machines_in_page_commands_exist(context, typed):
    """Their images need not run there: a page may ask why they do not."""
    for folder in ("recipes", "targets"):
        shutil.copytree(ROOT / folder, context.root / folder)
    named = machines()
    assert len(named) > 10
    for (stack, *known), where in named.items():
        words = [word for name, value in known for word in (f"--{name}", value)]
        code, _, said = typed("explain", *[stack] * bool(stack), *words)
        assert code == 0, f"{where}\n{said}"


@pytest.mark.parametrize("page", [page for page in PAGES if "/zh/" not in page])
def test_explain_list_and_doctor_commands_of_pages_run(page, context, typed):
    """`explain`, `list`, `schema` and `doctor --explain` need neither image nor network."""
    for folder in ("recipes", "targets"):
        shutil.copytree(ROOT / folder, context.root / folder)
    recipe = re.search(r"^```toml\n(.*?)^```$", (ROOT / "docs/recipes.md").read_text(), re.MULTILINE | re.DOTALL)[1]
    (context.root / "recipes" / "mine.toml").write_text(recipe)
    for command in commands(page):
        for program, *words in parts(command.text):
            if program in OURS and is_answered_here(words):
                code, out, said = typed(*words)
                assert (code, out != "") == (0, True), f"{command}\n{said}"


def is_answered_here(words):
    """Return whether it needs no image, no network, and no recipe or error that a page made up."""
    theirs = {"VERSION", "ETC", "the line", "the message", "ImportError: ETC"} & set(words)
    return not theirs and (words[0] in ("explain", "list", "schema") or words[:2] == ["doctor", "--explain"] != words)


def test_files_copied_by_page_commands_exist():
    copied = [words[1] for page in PAGES for one in commands(page) for words in parts(one.text) if words[0] == "cp"]
    ours = [path for path in copied if not path.startswith("/")]
    assert "examples/dna.py" in ours
    assert [path for path in ours if not Path(ROOT, path).is_file()] == []

"""Rendered texts: the committed ones are fresh, nothing of a plan is dropped, each form has what its engine knows."""

import re
import shlex
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate import render
from graphcrate.compat.facts import compilers, libraries
from graphcrate.compat.facts.addresses import cuda_label
from graphcrate.compat.facts.toolkits import assembly
from graphcrate.compat.plan import planning
from graphcrate.compat.plan.image_config import EXAMPLES, PROGRAMS
from graphcrate.compat.plan.planning import ADDED_FILES_TITLE, EXAMPLES_TITLE
from graphcrate.compat.variants import recipes
from graphcrate.host.context import Context
from graphcrate.inputs.extensions import compile as embedded
from graphcrate.inputs.extensions.libraries import library_order, package_order
from graphcrate.model.errors import ResolutionError, UsageError
from graphcrate.model.lock import Added, RegistryBase, decode_lock
from graphcrate.model.plan import BaseStep, CompileStep, ConfigStep, FilesStep, PlannedFile, RequirementsStep
from graphcrate.model.platform import DEFAULT, SUPPORTED
from graphcrate.model.recipe import Additions, Channel
from graphcrate.render import files
from graphcrate.render.layout import double, quoted, written
from graphcrate.render.steps import UV
from tests import ROOT
from tests.made import refused, sdist
from tests.unit.compiled_plans import DEBS, PACKAGES, PLANS, RECIPE, TOOLKITS, VARIANT, lock, plan

PLACE = Context(root=ROOT, environment={})
VARIANTS = [
    (recipes.load(path), variant)
    for path in sorted((ROOT / "recipes").glob("*.toml"))
    for variant in recipes.load(path).variants
    if variant.unavailable is None
]
PYG = recipes.load(ROOT / "recipes" / "pyg.toml")
COMMITTED = decode_lock((ROOT / "images/pyg/cu118/compatible.lock.json").read_bytes())
#: without what is compiled, of which PLANS has every kind
LOCK = msgspec.structs.replace(
    COMMITTED, packages=tuple(one for one in COMMITTED.packages if not one.compiled), compilation=None
)
SHIPPED = {"examples/dna.py": "#!/usr/bin/env python\nprint(1)\n", "suites/README.md": "# it's\n"}
#: written by `render` and not committed
ON_DEMAND = {"requirements.txt", "sources.txt"}
ALL = {"Dockerfile": render.dockerfile, "definition": render.definition}
every_form = pytest.mark.parametrize("write", ALL.values(), ids=ALL)


def plan_of(lock=LOCK):
    return planning.make_plan(PYG, lock, PYG.variant("11.8").candidates[1], examples=SHIPPED)


def with_channel(channel, name):
    packages = [msgspec.structs.replace(one, channel=channel) if one.name == name else one for one in LOCK.packages]
    return plan_of(msgspec.structs.replace(LOCK, packages=tuple(packages)))


PLAN = plan_of()
EVERY_PLAN = {"wheels": PLAN, **PLANS}
TEXTS = {name: render.dockerfile(known) for name, known in EVERY_PLAN.items()}


def stage(text, name):
    """The text between a stage's FROM and the next one."""
    return re.search(rf"^FROM \S+ AS {name}\n(.*?)(?=\n^FROM )", text, re.MULTILINE | re.DOTALL)[1]


def compile_step(known):
    return next(step for step in known.steps if isinstance(step, CompileStep))


def lacking(plan, text):
    """Words of the plan's steps that are missing in the text."""
    return [word for step in plan.steps for word in words(step) if word not in text]


def words(step):
    match step:
        case BaseStep():
            return [step.image.reference, *step.image.packages]
        case FilesStep() if step.title == EXAMPLES_TITLE:
            return [EXAMPLES, f"{PROGRAMS}/suites"] if step.files else []
        case FilesStep():
            return [file.path for file in step.files]
        case RequirementsStep():
            return list(step.requirements)
        case ConfigStep():
            values = {**step.environment, **step.labels}
            return [*values, *(double(value)[1:-1] for value in values.values()), *step.entrypoint]
    known = msgspec.to_builtins(step)
    if known.get("compilation"):
        used = known["compilation"] = {**known["compilation"], "base": None}
        gpus = ["FORCE_CUDA", f'"{";".join(used["architectures"])}"'] if used["toolkit"] else ["FORCE_ONLY_CPU"]
        return [used["compiler"], *gpus, *pinned(known)]
    return pinned(known)


def pinned(value):
    """The form in a text of each file and image that a value locks."""
    if isinstance(value, list | tuple):
        return [word for one in value for word in pinned(one)]
    if not isinstance(value, dict):
        return []
    if "digest" in value:
        return [f"{value['reference']}@{value['digest']}"]
    name, version, file = (value.get(key) for key in ("name", "version", "file"))
    own = []
    if value.get("architecture") == "source":
        own = [f"source --download-only {name}", f"'{file['sha256']}  /root/{file['name']}'"]
    elif "architecture" in value:
        own = [f"'{name}={version}'", f"'{file['sha256']}  /opt/toolkit/debs/{name}_"]
    elif file:
        own = [f"'{name}=={version} --hash=sha256:{file['sha256']}'"]
    return own + pinned(list(value.values()))


def test_committed_texts_of_all_variants_equal_rendered_ones():
    known = set()
    for recipe, variant in VARIANTS:
        folder = ROOT / "images" / recipe.name / cuda_label(variant.cuda)
        known.add(folder)
        made = {name: text for name, text in files.texts(PLACE, recipe, variant).items() if name not in ON_DEMAND}
        assert {name for name, text in made.items() if (folder / name).read_bytes() != text.encode()} == set(), folder
        others = {path.name for path in folder.iterdir()} - set(made) - ON_DEMAND
        ported = {platform.architecture for platform in SUPPORTED if platform != DEFAULT}
        assert all(name.endswith((".lock.json", ".proof.json")) for name in others - ported), others
        plan = files.plan_of(PLACE, recipe, variant)
        assert [lacking(plan, made[name]) for name in ("Dockerfile", f"{recipe.name}.def")] == [[], []]
    assert set((ROOT / "images").glob("*/*")) == known


def test_new_gpu_changes_no_rendered_text(gpus_are):
    """A fall-back, whose torch lacks code for newer GPUs, and what is compiled for some of each compute capability."""
    plans = [planning.make_plan(PYG, COMMITTED, PYG.variant("11.8").candidates[1], examples=SHIPPED), PLANS["debian"]]
    before = [write(known) for known in plans for write in (*ALL.values(), render.readme)]
    assert any("sm_86 alone, and no PTX" in text.replace("\n# ", " ") for text in before)
    gpus_are({f"NEW_{capability}": capability for capability in ("7.0", "8.0", "9.0", "13.0")})
    assert [write(known) for known in plans for write in (*ALL.values(), render.readme)] == before


@every_form
@pytest.mark.parametrize("known", EVERY_PLAN.values(), ids=EVERY_PLAN)
def test_rendered_text_has_all_of_the_plan_and_checks_hashes(write, known):
    text = write(known)
    assert lacking(known, text) == []
    installs = re.findall(r"(pip (?:download|install) .*(?:\n .*)?)", text)
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)
    # the other one takes the wheel that was just made of a source whose hash was checked
    links = {line.split("--find-links ")[1].split()[0] for line in installs if "--require-hashes" not in line}
    assert links <= {"/root/wheels", "/root/compiled"}
    assert all("--no-deps" in line for line in installs)
    assert f"uv=={UV['version']} --hash=sha256:{UV['sha256']['linux/amd64']}" in text
    assert "LD_LIBRARY_PATH" not in text
    # `site` imports what `.pth` files name (setuptools has one), and compileall leaves alone what is compiled
    assert "/opt/venv/bin/python -B -S -m compileall -f " in text
    # tzdata on Ubuntu waits for an answer
    assert all(line.startswith("DEBIAN_FRONTEND=") for line in re.findall(r"\S+ apt-get (?:-o \S+ )?install", text))


def test_rendered_uv_version_is_that_of_requirements_txt():
    entry = (ROOT / "requirements.txt").read_text().partition(f"\nuv=={UV['version']} ")[2].partition("==")[0]
    assert all(sha256 in entry for sha256 in UV["sha256"].values())


def test_cache_mounts_are_rendered_for_buildkit_only():
    plain, mounted = TEXTS["debian"], render.dockerfile(PLANS["debian"], cache_mounts=True)
    assert "--mount" not in plain
    installs = plain.count("uv pip install --no-deps --no-b")
    assert mounted.count("RUN --mount=type=cache,target=/root/.cache/uv") == installs
    assert re.search(r"RUN --mount=type=cache\S+ printf '%s\\n' > /root/build-tools.txt", mounted)
    assert "UV_NO_CACHE" not in mounted


OPEN = PYG.variant("11.8")
REGISTRY = RegistryBase(
    reference="docker.io/python", digest="sha256:" + "a" * 64, interpreter="/usr/local/bin/python3.11"
)
TRIXIE = msgspec.structs.replace(TOOLKITS["debian"], suite="trixie")
OURS = tuple(sdist(one.name, one.version, Channel.LOCAL) if one.compiled else one for one in PACKAGES)
TORCH, LINKS = "https://download.pytorch.org/whl/cu117", "https://data.pyg.org/whl/torch-2.0.0+cu117.html"
#: a plan; what both texts say; what the Dockerfile says, and the definition; what neither says
SAID = {
    "PyTorch's index": (
        with_channel(Channel.PYTORCH, "torch"), ['uv pip install --default-index "${PYTORCH_INDEX}" --no-deps'],
        [f"ARG PYTORCH_INDEX={TORCH}\n"], [f'PYTORCH_INDEX="${{PYTORCH_INDEX:-{TORCH}}}"'], ["PYG_LINKS"],
    ),
    "PyG's page": (
        with_channel(Channel.PYG, "ogb"), ['uv pip install --no-index --find-links "${PYG_LINKS}" --no-deps'],
        [f"ARG PYG_LINKS={LINKS}\n"], [f'PYG_LINKS="${{PYG_LINKS:-{LINKS}}}"'], ["PYTORCH_INDEX", "/context/wheels"],
    ),
    "a folder of wheels": (
        with_channel(Channel.LOCAL, "torch"), ["uv pip install --no-index --find-links /context/wheels --no-deps"],
        ["COPY --from=beside /context/wheels /context/wheels"],
        ['cp -rL wheels "${SINGULARITY_ROOTFS}/context/wheels"'], [],
    ),
    "a folder of sources": (
        plan(TOOLKITS["debian"], packages=OURS), ["download --no-index --find-links /context/wheels --no-cache-dir"],
        ["COPY --from=beside /context/wheels"], ["cp -rL wheels"], [],
    ),
    "no lock": (
        planning.make_open_plan(PYG, OPEN, OPEN.candidates[0], examples=SHIPPED),
        ["'torch==2.0.1+cu118'", "https://download.pytorch.org/whl/cu118", "--cuda 11.8` and `make"],
        [], [], ["--require-hashes --requirement /root/requirements"],
    ),
    "a registry's base": (
        plan_of(msgspec.structs.replace(LOCK, base=REGISTRY)), [],
        [f"ARG BASE=docker.io/python@{REGISTRY.digest}\n"], [f"From: docker.io/python@{REGISTRY.digest}\n"],
        ["apt-get"],
    ),
    "Debian's toolkit": (  # apt writes an epoch into the name of the file
        PLANS["debian"],
        [f"{DEBS[1].file.sha256}  /opt/toolkit/debs/libthrust-dev_1%3a2.0.1-1_amd64.deb",
         "sha256sum --check --quiet /opt/toolkit/debs.sha256", "sed -i 's/\\bmain\\b/main contrib non-free/' {} +"],
        [], ["%files from build\n    /opt/venv\n\n"], [],
    ),
    "another suite's": (
        plan(TRIXIE), ["'s/\\bbookworm\\b/trixie/; s/\\bmain\\b/main contrib non-free/'"], [], [], [],
    ),
    "a toolkit that stays": (
        PLANS["debian-devel"], [], [], ["%files from build\n    /opt/venv\n    /usr/local/cuda\n"], [],
    ),
    "a toolkit of wheels": (PLANS["pypi"], [], [], [], ["apt-get download"]),
    "an image's toolkit": (
        PLANS["image"], [], [f"\nFROM nvidia/cuda@sha256:{'d' * 64} AS toolkit\n"],
        [f"Bootstrap: docker\nFrom: nvidia/cuda@sha256:{'d' * 64}\nStage: toolkit\n",
         "%files from toolkit\n    /opt/toolkit /usr/local/cuda\n"], ["apt-get download"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SAID)
def test_rendered_texts_name_their_sources(case):
    known, both, docker, definition, neither = SAID[case]
    texts = render.dockerfile(known), render.definition(known)
    for text, own in zip(texts, (docker, definition), strict=True):
        flat = text.replace("\n# ", " ")
        assert [phrase for phrase in (*both, *own) if phrase not in text and phrase not in flat] == []
        assert [phrase for phrase in neither if phrase in text] == []


def test_rendered_definition_has_no_arguments_section():
    text = render.definition(PLAN)
    assert "%arguments" not in text
    assert text.count("Bootstrap: docker\nFrom: debian:bookworm-slim\n") == 2
    assert render.definition(PLAN, bootstrap="oci", base="base").count("Bootstrap: oci\nFrom: base\n") == 2


@given(st.text(alphabet=st.characters(exclude_characters="\0\n", exclude_categories=["Cs"])))
def test_rendered_quoting_is_read_back_by_a_shell(text):
    assert shlex.split(quoted(text)) == [text]
    assert shlex.split("echo " + double(text).replace("\\$", "$").replace("\\`", "`"))[1:] == [text]
    assert shlex.split(written([text], "/x").replace("\\\n", ""))[-1] == text


def test_planned_files_are_rendered_with_content_and_mode():
    content = "# a\n\n#: b \\\n"
    made = PlannedFile(path="/opt/x", folder=True, mode=0o700)
    more = FilesStep(title="more", files=(made, PlannedFile(path="/opt/x/run", content=content, mode=0o755)))
    plan = msgspec.structs.replace(PLAN, steps=(PLAN.steps[0], more, *PLAN.steps[1:]))
    for text, follows in ((render.dockerfile(plan), " \\\n && "), (render.definition(plan), "\n    ")):
        assert f"chmod 700 /opt/x{follows}" in text
        lines = "".join(f" \\\n        '{line}'" for line in content.splitlines())
        assert f"> /opt/x/run{lines}{follows}chmod 755 /opt/x/run" in text


# --- what is compiled -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", PLANS.values(), ids=PLANS)
def test_rendered_final_stage_has_a_compiler_in_devel_images_only(known):
    text = render.dockerfile(known)
    copied = re.findall(r"^COPY --from=(\S+) (\S+) ", text.rpartition("\nFROM base\n")[2], re.MULTILINE)
    devel = known.tag.endswith("-devel")
    venv = [name for name, path in copied if path == "/opt/venv"]
    assert venv == [*(["cuda"] if "cuda" in venv else []), "torch", "tools", "pyg", "extensions"]
    stays = devel and "toolkit" in text
    assert [name for name, path in copied if path == "/usr/local/cuda"] == (["toolkit"] if stays else [])
    assert ("g++-11" in stage(text, "base")) == devel
    assert ("apt-get" in stage(text, "compile")) != devel
    last = render.definition(known).rpartition("Stage: final")[2]
    assert ("g++-11" in last.partition("%help")[0]) == devel


@pytest.mark.parametrize("name", PLANS)
def test_rendered_compile_stage_has_variables_and_folder_of_the_embedded_build(name):
    variables = embedded.environment(SimpleNamespace(step=compile_step(PLANS[name])), 1)
    # of the machine, or of no weight for what is compiled
    for variable in set(variables) - {"PATH", "TMPDIR", "MAX_JOBS", "GLIBC_TUNABLES", "PYTHONDONTWRITEBYTECODE"}:
        assert f'{variable}="{variables[variable]}"' in stage(TEXTS[name], "compile")
    assert f"mkdir -p {embedded.BUILD}/torch-scatter-2.1.2 " in stage(TEXTS[name], "torch-scatter")


@every_form
def test_rendered_headers_and_toolkit_equal_those_of_the_embedded_build(write):
    text = write(PLANS["debian"])
    for path, lines in compilers.STAND_INS.items():
        expected = " ".join(f"'{line}'" for line in lines)
        assert f"printf '%s\\n' > /root/headers/{path} {expected}" in " ".join(text.replace("\\\n", " ").split())
    for folder in ("torch-scatter-2.1.2", "torch-sparse-0.6.18"):
        assert f"cp -R /root/headers/. /build/{folder}/csrc" in text
    for kind in ("debian", "pypi"):
        flat = re.sub(r" \\\n +(&& )?", " ", write(PLANS[kind]))
        assert [line for line in assembly(TOOLKITS[kind]) if line not in flat] == []


@every_form
def test_rendered_library_is_made_as_in_the_embedded_build(write, monkeypatch):
    monkeypatch.setenv("CC", "gcc-11")
    flat = " ".join(re.sub(r"\\\n +(&& )?", "", write(PLANS["linked"])).split())
    (how,) = libraries.of_packages(["torch-sparse"])
    order = library_order(how, how.locked)
    assert f"{' '.join(order['options'])} -Iinclude -c ${{source}} -o objects/$(echo ${{source}} | tr / _).o" in flat
    assert f"mv /build/sources/{order['top']} {order['folder']} " in flat
    assert "'ar rcsD libmetis.a objects/*.o'" in flat
    for path, old, new in order["edits"]:
        assert f"sed -i 's/^{old}$/{new}/' {order['folder']}/{path} " in flat
    for path in order["without"]:
        assert f"{order['folder']}/{path} " in flat
    given = package_order("torch-sparse", compile_step(PLANS["linked"]).compilation)
    settings = f"WITH_METIS=1 CPATH={given['include_dirs'][0]} LIBRARY_PATH={given['library_dirs'][0]} "
    assert flat.count(settings) == 2, "torch-sparse alone, with small headers and with torch's own"
    for name, path in given["texts"].items():
        assert f"cp {path} /build/torch-sparse-0.6.18/{name} " in flat


def test_rendered_library_is_a_stage_of_its_own_that_one_package_takes():
    text = TEXTS["linked"]
    assert "ar rcsD" in stage(text, "libmetis")
    assert "COPY --from=libmetis /build/metis /build/metis" in stage(text, "torch-sparse")
    assert "metis" not in stage(text, "torch-scatter").lower()
    assert "WITH_METIS" not in TEXTS["debian"]


def test_rendered_sources_name_what_they_are_linked_to():
    sources = render.sources_text(PLANS["linked"])
    assert "torch-sparse: linked to METIS 5.1.0" in sources
    assert '\n#     export WITH_METIS="1"\n#     export CPATH=FOLDER/include LIBRARY_PATH=FOLDER\n' in sources
    assert "METIS" not in render.sources_text(PLANS["debian"])


def test_rendered_source_of_the_users_is_compiled_with_what_was_asked_for():
    mine = msgspec.structs.replace(sdist("causal-conv1d", "1.0"), back_end=True)
    locked = lock(TOOLKITS["debian"], (*PACKAGES, mine))
    asked = {"with_apt": ("swig",), "with_env": ('CMAKE_ARGS=-DA="b c" -D$X', "CXXFLAGS=-DY")}
    compilation = msgspec.structs.replace(locked.compilation, **asked)
    locked = msgspec.structs.replace(locked, compilation=compilation, added=Added(packages=(mine.name,)))
    additions = Additions(packages=(mine.name,))
    known = planning.make_plan(RECIPE, locked, VARIANT.candidates[0], examples={}, additions=additions)
    text, sources = render.dockerfile(known), render.sources_text(known)
    assert " swig" in text
    assert " pkg-config" in text
    for form in (text, sources):
        assert 'CMAKE_ARGS="-DA=\\"b c\\" -D\\$X"' in form
        assert 'CAUSAL_CONV1D_FORCE_BUILD="TRUE"' in form
        assert '-g0 -DY"' in form
    of_stack = stage(text, "compile")
    assert "CMAKE_ARGS" not in of_stack, "PyG's extensions are the stack's"


@pytest.mark.parametrize(
    ("toolkit", "options"), [("debian", "--blas=openblas --force_cuda"), (None, "--blas=openblas")]
)
def test_rendered_source_gets_the_options_that_its_setup_py_takes(toolkit, options):
    mine = msgspec.structs.replace(sdist("minkowskiengine", "0.5.4"), back_end=True)
    locked = lock(TOOLKITS["debian"], (*PACKAGES, mine))
    if toolkit is None:
        cpu = msgspec.structs.replace(locked.compilation, toolkit=None, architectures=())
        locked = msgspec.structs.replace(locked, compilation=cpu)
    locked = msgspec.structs.replace(locked, added=Added(packages=(mine.name,)))
    additions = Additions(packages=(mine.name,))
    known = planning.make_plan(RECIPE, locked, VARIANT.candidates[0], examples={}, additions=additions)
    given = f"'--config-settings=--global-option={options}'"
    for text in (render.dockerfile(known), render.definition(known)):
        flat = " ".join(text.replace("\\\n", " ").split())
        command = f"wheel --no-cache-dir --no-deps --no-build-isolation {given} --wheel-dir"
        assert flat.count(command) == 1
        assert flat.count("--config-settings") == 1, "PyG's extensions are compiled without"
    for_uv = f"--config-settings-package 'minkowskiengine:--global-option={options}' --requirement sources.txt"
    sources = render.sources_text(known)
    assert for_uv in sources
    assert "# SITE_PACKAGES: the folder that those of Python are in.\n" in sources
    assert "-ISITE_PACKAGES/pybind11/include" in sources
    assert "-I/opt/build-tools/pybind11/include" in render.dockerfile(known)


@every_form
def test_rendered_own_files_come_last_with_their_folders(write):
    files = (PlannedFile(path="/opt/mine/train.py", content="print(1)\n"), PlannedFile(path="/srv/a b", content="x\n"))
    step = FilesStep(title=ADDED_FILES_TITLE, files=files)
    text = write(msgspec.structs.replace(PLANS["debian"], steps=(*PLANS["debian"].steps, step)))
    flat = " ".join(text.replace("\\\n", " ").replace("&&", " ").split())
    assert flat.count("mkdir -p /opt/mine /srv printf '%s\\n' > /opt/mine/train.py 'print(1)'") == 1
    assert "printf '%s\\n' > '/srv/a b' 'x'" in flat
    assert flat.index("/opt/mine") > flat.rindex("/examples" if "COPY" in flat else "Stage: final")


def test_rendered_command_begins_in_the_working_folder():
    known, begins = PLANS["debian"], {"working_folder": "/opt/a b", "command": ("python", "-m", "mine")}
    steps = [msgspec.structs.replace(step, **begins) if isinstance(step, ConfigStep) else step for step in known.steps]
    known = msgspec.structs.replace(known, steps=tuple(steps))
    assert "    cd '/opt/a b'\n    exec python -m mine\n" in render.definition(known)
    assert "WORKDIR /opt/a b\n" in render.dockerfile(known)


def test_rendered_requirements_and_sources_list_all_packages():
    wheels, sources = render.requirements_text(PLANS["debian"]), render.sources_text(PLANS["debian"])
    listed = re.findall(r"^([a-z0-9-]+)==(\S+) \\\n    --hash=sha256:(\w+)$", wheels + sources, re.MULTILINE)
    assert sorted(listed) == sorted((one.name, one.version, one.file.sha256) for one in PACKAGES)
    assert "torch-scatter==" not in wheels
    assert '\n#     export TORCH_CUDA_ARCH_LIST="7.0;8.0+PTX"\n' in sources
    assert "Wanted: g++-11, Python's headers, CUDA 11.8.89 in /usr/local/cuda" in sources
    assert render.sources_text(PLAN) == ""


# --- the command ----------------------------------------------------------------------------------------------------


def test_render_all_writes_changed_files_only(tmp_path):
    first = list(files.render_all(PLACE, "pyg", "11.8", tmp_path))
    assert first == [tmp_path / "pyg" / "cu118"]
    assert list(files.render_all(PLACE, "pyg", "11.8", tmp_path)) == []
    (first[0] / "Dockerfile").write_text("")
    assert list(files.render_all(PLACE, "pyg", "11.8", tmp_path)) == first
    assert len(list(files.render_all(PLACE, None, None, tmp_path))) == len(VARIANTS) - 1
    with refused(UsageError, "CUDA '11.9'", "./build.py list"):
        list(files.render_all(PLACE, None, "11.9", tmp_path / "other"))
    assert not (tmp_path / "other").exists()


def test_render_without_a_lock_names_the_lock_command(tmp_path):
    variant = PYG.variant("cpu")
    local = tuple(one for one in variant.candidates if Channel.LOCAL in one.channels)
    variant = msgspec.structs.replace(variant, candidates=local)
    command = "./build.py lock pyg --cuda cpu --channel local --wheels FOLDER"
    with refused(ResolutionError, "that a text could be about", command):
        files.shown(Context(root=tmp_path, environment={}), PYG, variant)

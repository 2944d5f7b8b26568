"""The catalogue: pages of all variants, in English and Chinese, with what was measured of them."""

import html
import re
import shutil

import msgspec
import pytest

from graphcrate.artifacts.locate import read_report
from graphcrate.compat.variants import recipes
from graphcrate.inputs.shared.entry import IMAGE, CacheEntry, SharedFile, sealed
from graphcrate.model.lock import encode
from graphcrate.model.lock_proof import decode_proof
from graphcrate.model.recipe import Additions
from graphcrate.model.report import Audited, BuildParameters, Fallback
from graphcrate.model.words import size
from graphcrate.oci.layout import read_layout
from graphcrate.pages import report
from graphcrate.pages.html import page_words
from tests import ROOT
from tests.commands import objection, parts
from tests.unit import small_layouts
from tests.unit.inputs.test_shared_cache import (
    SITE,
    STRANGER,
    keys,  # noqa: F401 (a fixture)
    user,  # noqa: F401 (a fixture)
)
from tests.unit.pages.test_pages import SUITE, written
from upkeep.catalogue import pages

PACKAGE = "upkeep.catalogue"  #: whose words those of the map are beside


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder for what the tests of this file share."""
    return tmp_path_factory.mktemp("catalogue")


@pytest.fixture
def site(kept, request):
    """The catalogue for tests that only read it, written once."""
    if not (kept / "site").exists():
        shutil.copytree(request.getfixturevalue("own_site"), kept / "site")
    return kept / "site"


@pytest.fixture
def own_site(context, tmp_path):
    """A catalogue of all recipes, with one image that was built here."""
    for folder in ("recipes", "images"):
        shutil.copytree(ROOT / folder, context.root / folder)
    path = written(tmp_path, "pyg")
    fallback = Fallback(meaning="torch for CUDA 11.7", limits=(), no_code=("H100", "GH200"))
    known = {"cuda": "11.8", "suites": (SUITE,), "build_key": "k", "fallback": fallback}
    made = small_layouts.report(read_layout(path), name="pyg", **known)
    made = msgspec.structs.replace(made, layout="/elsewhere/dist/pyg/tag/oci")  # built in another folder
    (path.parent / "report.json").write_bytes(encode(made))
    other = shutil.copytree(path.parent, path.parent.with_name("other"))
    (other / "report.json").write_bytes(encode(msgspec.structs.replace(made, tag="../../outside")))
    (path.parent / "report.html").write_text("a page")
    pages.write(context, tmp_path / "dist", tmp_path / "site")
    return tmp_path / "site"


def test_catalogue_links_lead_to_its_pages(own_site):
    pages = {path.name: path.read_text(encoding="utf-8") for path in own_site.glob("*.html")}
    variants = sum(len(recipes.load(path).variants) for path in (ROOT / "recipes").glob("*.toml"))
    assert len(pages) == 2 * (variants + 1)
    assert [path.name for path in (own_site / "reports").iterdir()] == ["pyg-tag.html"]
    assert not list(own_site.parent.rglob("*outside*"))
    for text in pages.values():
        for target in re.findall(r'href="([^"]*)"', text):
            assert (own_site / html.unescape(target)).is_file(), target
        assert "<script>alert" not in text


@pytest.mark.parametrize(("signer", "pages_with_it"), [(SITE, {"index", "pyg-cu118"}), (STRANGER, set())])
def test_image_that_a_sites_cache_has_is_named_where_a_trusted_key_signed_it(
    context,
    tmp_path,
    user,  # noqa: F811
    signer,
    pages_with_it,
):
    for folder in ("recipes", "images"):
        shutil.copytree(ROOT / folder, context.root / folder)
    (path,) = (context.root / "images/pyg/cu118").glob("*.proof.json")
    digest = decode_proof(path.read_bytes()).digest.removeprefix("sha256:")
    image = CacheEntry(
        kind=IMAGE,
        key="ab" * 32,
        files=(SharedFile(name=digest, size=1, sha256=digest),),
        seconds=1.0,
        maker="m",
        made="2026-11-29T00:00:00Z",
    )
    (entries := tmp_path / "shared/entries").mkdir(parents=True)
    (entries / f"{image.tag}.json").write_bytes(sealed(image, signer))
    pages.write(context, tmp_path / "dist", tmp_path / "site", user("u", tmp_path / "shared").cache)
    words = page_words(PACKAGE)["cached"]
    texts = {path.name: html.unescape(path.read_text(encoding="utf-8")) for path in (tmp_path / "site").glob("*.html")}
    for language, ending in (("en", ".html"), ("zh", ".zh.html")):
        assert {name.removesuffix(ending) for name, text in texts.items() if words[language] in text} == pages_with_it
    assert not pages_with_it or str(tmp_path / "shared") in texts["pyg-cu118.html"]


def test_each_copy_button_gives_commands_that_their_programs_take(own_site, context, tmp_path):
    """Of the catalogue and of a report; Docker's begin in the folder that they mount, as README's does."""
    image = report.read(str(tmp_path / "dist/pyg/tag/oci"), context, tmp_path / "dist")
    texts = [report.html(image), *(path.read_text(encoding="utf-8") for path in own_site.glob("*.html"))]
    buttons = [
        html.unescape(text) for page in texts for text in re.findall(r'class="copy"><pre>(.*?)</pre>', page, re.S)
    ]
    assert len(buttons) > 100
    for line in {line for text in buttons for line in text.splitlines() if not line.startswith("#")}:
        assert [(line, said) for words in parts(line) if (said := objection(words))] == []
    docker = {line for text in buttons for line in text.splitlines() if line.startswith("docker run")}
    assert {("--gpus all" in line, '"$PWD:/work" --workdir /work' in line) for line in docker} == {
        (True, True),
        (False, True),
    }


def test_catalogue_says_of_which_day_a_lock_is(site):
    for name, word in (("index.html", "locked"), ("index.zh.html", "已锁定")):
        assert re.search(rf"{word} \d{{4}}-\d\d-\d\d", (site / name).read_text(encoding="utf-8"))


@pytest.mark.usefixtures("own_site")
def test_catalogue_in_german_needs_words_only(context, tmp_path, monkeypatch):
    """Nothing else has to change for German."""
    german = {word: {**texts, "de": f"de-{word}"} for word, texts in pages.page_words(PACKAGE).items()}
    monkeypatch.setattr(pages, "page_words", lambda _: german)
    pages.write(context, tmp_path / "dist", tmp_path / "site")
    text = (tmp_path / "site" / "pyg-cu118.de.html").read_text(encoding="utf-8")
    assert ('<html lang="de">' in text, ">de-gpus</h2>" in text) == (True, True)
    for code, name in (("", "English"), (".zh", "中文"), (".de", "de-language")):
        assert f'<a href="pyg-cu118{code}.html" lang="{code[1:] or "en"}">{name}</a>' in text


def test_catalogue_pages_in_chinese_have_the_same_commands(site):
    def commands(path):
        return re.findall(r"<pre>(.*?)</pre>", path.read_text(encoding="utf-8"), re.DOTALL)

    for path in site.glob("*.zh.html"):
        assert commands(path) == commands(path.with_name(path.name.replace(".zh.", ".")))
    assert "make image STACK=pyg CUDA=11.8" in commands(site / "pyg-cu118.html")


def test_catalogue_search_words_have_gpu_torch_and_runtime(site):
    cards = dict(re.findall(r'href="([\w-]+)\.html" data-words="([^"]*)"', (site / "index.html").read_text()))
    found = {word: {name for name, words in cards.items() if word in words} for word in ("h100", "torch 2.7", "pyxis")}
    assert "pyg-cu118" in found["h100"]
    assert "pyg-cu117" not in found["h100"]
    assert found["torch 2.7"] == {"pyg-cu126", "torch-cu126"}
    assert len(found["pyxis"]) == len(cards)
    assert "graphlearn-torch" in cards["glt-cu121"]


def test_variant_page_has_measured_gpus_and_those_of_other_candidates(site):
    text = (site / "pyg-cu118.html").read_text()
    assert "&lt;script&gt;" in text
    runs, _, others = re.search(r'id="gpus">(.*?)</section>', text, re.DOTALL)[1].partition('class="note"')
    assert (">A100<" in runs, ">H100<" in runs, ">H100<" in others, "(pytorch)" in others) == (True, False, True, True)
    assert "has no code for H100, GH200" in text
    assert "but by another" not in (site / "pyg-cu126.html").read_text()


def test_variant_page_marks_gpus_that_need_a_build(site):
    gpus = re.search(r'id="gpus">(.*?)</section>', (site / "pyg-cu118.html").read_text(), re.DOTALL)[1]
    assert set(re.findall(r'class="badge built">([^<]*)<', gpus)) == {"P100", "P40", "P4"}
    assert "make image STACK=pyg CUDA=11.8 GPU=p100" in gpus
    assert "P100" not in re.findall(r'class="badge (?:yes|limits)"[^>]*>([^<]*)<', gpus)


def test_variant_page_has_the_tag_and_size_of_its_proof(site):
    """Size, suites, GPUs, and the tag that Docker calls it by; a card its size; one without a proof none."""
    proof = decode_proof((ROOT / "images/pyg/cu126/pypi.proof.json").read_bytes())
    text = html.unescape((site / "pyg-cu126.html").read_text())
    measured = re.search(r'id="measured">(.*?)</section>', text, re.DOTALL)[1]
    assert (f"pyg:{proof.tag}<" in measured, size(proof.bytes) in measured) == (True, True)
    assert ("P100, P40, P4" in measured, "V100" in measured) == (True, False)
    assert f"pyg:{proof.tag} python train.py" in text
    cards = (site / "index.html").read_text()
    card = re.search(r'href="pyg-cu126.html" data-words.*?</a>', cards, re.DOTALL)[0]
    assert size(proof.bytes) in card
    assert "torch 2.12.1+cpu" in re.search(r'href="pyg-cpu.html".*?</a>', cards, re.DOTALL)[0]
    assert "pyg:<tag>" in html.unescape((site / "pyg-cpu.html").read_text())


def test_variant_page_takes_gpus_of_the_audit_and_no_tag_with_additions(own_site, context, tmp_path):
    """P100 is among those without code by the audit, and the plain image alone lends its tag."""
    path = tmp_path / "dist" / "pyg" / "tag" / "report.json"
    made = read_report(path)
    audit = Audited(binaries=1, fail=0, warn=0, note=0, gpus={"6.0": "fails", "7.0": "native"})
    asked = BuildParameters(recipe="pyg", variant="11.8", additions=Additions(packages=("ase",)))
    path.write_bytes(encode(msgspec.structs.replace(made, audit=audit, asked=asked)))
    pages.write(context, tmp_path / "dist", tmp_path / "site")
    text = (tmp_path / "site" / "pyg-cu118.html").read_text()
    assert "has no code for P100</div>" in text
    assert "pyg:tag python train.py" not in text


def test_catalogue_describes_all_recipes_in_chinese_and_cpu_variants_without_gpu(site):
    assert all({*texts} == {"en", "zh"} for texts in pages.page_words(PACKAGE).values())
    described = {stack.name: stack.translated["zh"] for stack in map(recipes.load, (ROOT / "recipes").glob("*.toml"))}
    assert described["pyg"] in (site / "pyg-cu118.zh.html").read_text(encoding="utf-8")
    text = (site / "pyg-cpu.html").read_text()
    assert "<h1>pyg, CPU</h1>" in text
    commands = " ".join(re.findall(r"<pre>(.*?)</pre>", text, re.DOTALL))
    assert "docker run" in commands
    assert not re.search("--nv|--gpus", commands)

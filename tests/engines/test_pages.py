"""Pages in a real browser: no error, no request, sorting, filtering, tabs, narrow screens, light and dark."""

import importlib.resources
import sys

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.conftest import ROOT
from tests.engines.workplace import call

pytestmark = [pytest.mark.slow, pytest.mark.engine("chromium", "chromedriver", "user namespaces")]


@pytest.fixture
def page(workplace, built_image, browser):
    """The report of the tests' image, opened."""
    workplace.run("report", built_image.layout, "--output", "page.html").ok()
    browser.get((workplace.folder / "page.html").as_uri())
    return browser


#: what is typed → the cards that stay
SEARCHES = {
    "torch 2.7": ["pyg CUDA 12.6", "torch CUDA 12.6"],
    "v100 driver 450 torchmetrics": ["pyg CUDA 11.6", "pyg CUDA 11.7", "pyg CUDA 11.8"],
    "glt a10 driver 535": ["glt CUDA 11.6", "glt CUDA 11.7", "glt CUDA 12.1"],
    "rtx5090 驱动 570.1 torch": ["pyg CUDA 12.8", "torch CUDA 12.8"],
    "driver 449": ["pyg CPU", "torch CPU"],
    "no-such-package": [],
}


def find(page, selector):
    return page.find_elements(By.CSS_SELECTOR, selector)


def metrics(page, width, *, mobile=False):
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": mobile}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def test_report_page_sorts_and_filters_without_requests_or_script_errors(page):
    assert page.get_log("browser") == []
    asked = page.execute_script("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert asked == []
    assert page.execute_script("return performance.timing.domContentLoadedEventEnd > 0")

    names = [cell.text for cell in find(page, "#package-rows > tr > td:first-child")]
    assert len(names) > 10
    heads = find(page, "#packages th button")
    heads[2].click()
    sizes = [float(cell.get_attribute("data-value")) for cell in find(page, "#package-rows td.number")]
    assert sizes == sorted(sizes)
    heads[2].click()
    assert find(page, "#packages th[aria-sort=descending]")

    field = find(page, "input[type=search]")[0]
    field.send_keys("torch")
    shown = [row.text for row in find(page, "#package-rows > tr") if row.is_displayed()]
    assert 0 < len(shown) < len(names)
    assert all("torch" in text.lower() for text in shown)

    assert find(page, "#run-apptainer")[0].is_displayed()
    find(page, "label[for=tab-docker]")[0].click()
    assert [one.is_displayed() for one in find(page, "#run-apptainer, #run-docker")] == [False, True]
    assert "docker load" in find(page, "#run-docker pre")[0].text


def test_report_page_fits_360_pixels_and_follows_the_colour_scheme(page):
    for width in (360, 1200):
        metrics(page, width, mobile=width == 360)
        assert page.execute_script("return document.documentElement.scrollWidth") <= width
    colours = set()
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        colours.add(page.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2


AXE = (importlib.resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
ASK = """
const done = arguments[0], told = (one) => one.target.join(" ") + ": " + one.any.map((why) => why.message).join("; ");
axe.run(document, {resultTypes: ["violations"]}).then((found) =>
  done(found.violations.flatMap((rule) => rule.nodes.map((one) => rule.id + ": " + told(one)))));"""


def found_by_axe(browser, path):
    """Findings of axe-core on a page that is a file."""
    return faults_of_axe(browser, path.as_uri())


def faults_of_axe(browser, address):
    """Findings of axe-core on a page, with all that can be opened on it open, on light and on dark screens."""
    browser.set_script_timeout(120)
    found = []
    browser.get(address)
    browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true;" + AXE)
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        found += [f"{address}, {scheme}: {one}" for one in browser.execute_async_script(ASK)]
    return found


def test_report_page_has_no_faults_of_axe(workplace, page):
    for width in (360, 1200):
        metrics(page, width, mobile=width == 360)
        assert found_by_axe(page, workplace.folder / "page.html") == []


def test_catalogue_pages_have_no_faults_of_axe(workplace, browser):
    """Every page of it, English and Chinese."""
    assert workplace.run("catalog", "--output", "site").code == 0
    metrics(browser, 1200)
    pages = sorted((workplace.folder / "site").glob("*.html"))
    assert len(pages) > 40
    assert [one for path in pages for one in found_by_axe(browser, path)] == []


#: page of all sections, words → its sections
SECTIONS = {
    "docs.html": ("--constraint dockerfile", "An image of ours in your Dockerfile"),
    "docs.zh.html": ("JupyterLab 令牌", "Notebook"),
}


def find_by_keys(browser, words, title):
    """Search the pages by the keyboard alone, with what a screen reader says of each step."""
    for _ in range(10):
        if browser.switch_to.active_element.aria_role == "searchbox":
            break
        browser.switch_to.active_element.send_keys(Keys.TAB)
    field, count = browser.switch_to.active_element, find(browser, "#count")[0]
    assert (field.aria_role, field.accessible_name.strip()) in {("searchbox", "search"), ("searchbox", "搜索")}
    assert count.get_attribute("aria-live") == "polite"
    field.send_keys("no-such-word")
    assert count.text == field.get_attribute("data-empty")
    field.clear()
    field.send_keys(words)
    shown = [one for one in find(browser, "#docs details") if one.is_displayed()]
    assert 0 < len(shown) < len(find(browser, "#docs details")) / 10
    assert count.text.startswith(f"{len(shown)}/")
    field.send_keys(Keys.TAB)
    section = browser.switch_to.active_element
    assert (section.tag_name, title in section.text) == ("summary", True)
    section.send_keys(Keys.ENTER)
    assert find(browser, "#docs details[open]") == shown[:1]


def test_page_of_all_documentation_is_searched_by_keys_and_read_aloud(browser, scratch):
    call(sys.executable, "-E", "-s", ROOT / "build.py", "catalog", "--output", scratch)
    metrics(browser, 1200)
    for name, (words, title) in SECTIONS.items():
        browser.get((scratch / name).as_uri())
        find_by_keys(browser, words, title)


def test_the_catalogue_finds_in_both_languages(workplace, browser):
    assert workplace.run("catalog", "--output", "site").code == 0
    for name in ("index.html", "index.zh.html"):
        browser.get((workplace.folder / "site" / name).as_uri())
        metrics(browser, 360, mobile=True)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
        assert browser.get_log("browser") == []
        for phrase, cards in SEARCHES.items():
            field = find(browser, "input[type=search]")[0]
            field.clear()
            field.send_keys(phrase)
            shown = [card.text.split("\n")[0] for card in find(browser, "a.card") if card.is_displayed()]
            assert shown == cards, phrase
        assert "WITH" in find(browser, "#count")[0].text
    find(browser, "label[for=map-glt]")[0].click()
    cell = next(one for one in find(browser, "#of-glt td a") if "12.1" in one.get_attribute("aria-label"))
    cell.click()
    assert browser.current_url.endswith("/glt-cu121.zh.html")

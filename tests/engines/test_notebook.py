"""The jupyter flavour in a real browser: a notebook opens, a cell trains and draws the curve."""

import contextlib
import json
import re
import shlex
import urllib.request
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.common.exceptions import TimeoutException, WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.conftest import ROOT
from tests.engines.typist import blocks, in_new_clone
from tests.engines.workplace import kill, small_stack, until

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.engine("chromium", "chromedriver", "user namespaces")]

TRAINING = """\
import matplotlib.pyplot as plt, torch
x, losses, model = torch.randn(256, 8), [], torch.nn.Linear(8, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for step in range(40):
    loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print("the loss", "fell" if losses[-1] < losses[0] / 2 else "rose")
plt.plot(losses);"""
PAGE = ROOT / "docs" / "notebooks.md"
SECONDS = 180  #: for the page and the kernel on a busy machine


@pytest.fixture
def image(workplace, built_image):
    """The image with JupyterLab."""
    workplace.run("image", *small_stack(), "--flavour", "jupyter").ok()
    cuda = small_stack()[2].replace(".", "")
    return f"torch:{cuda if cuda == 'cpu' else f'cu{cuda}'}-jupyter"


def answers(address):
    with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5) as page:
        return page.status == 200
    return False


@pytest.fixture
def notebook(workplace, image):
    """The address of train.ipynb in JupyterLab, run by `run` in the folder that has it."""
    cell = {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": [], "source": TRAINING}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    value = {"cells": [cell], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    (workplace.folder / "train.ipynb").write_text(json.dumps(value))
    (as_typed,), _ = blocks(PAGE, "Notebooks")
    _, *words = shlex.split(as_typed.replace("pyg:cu118-jupyter", image))
    process = workplace.start(*words)

    try:
        address = process.stdout.readline().strip().replace("/lab?token=", "/lab/tree/train.ipynb?token=")
        port, token = re.fullmatch(
            r"http://127.0.0.1:(\d+)/lab/tree/train.ipynb\?token=([0-9a-f]{48})", address
        ).groups()
        assert f"ssh -N -L {port}:127.0.0.1:{port} " in process.stdout.readline()
        assert token not in "".join(path.read_text() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists())
        until(lambda: answers(address), SECONDS, process)
        yield address
    finally:
        kill(process)


def test_notebook_cell_trains_and_shows_a_picture(notebook, browser):
    from selenium.webdriver.support.ui import WebDriverWait  # a fifth of a second, while all tests are collected

    wait = WebDriverWait(browser, SECONDS, poll_frequency=2)

    def find(selector):
        return browser.find_elements(By.CSS_SELECTOR, selector)

    def runs(_):
        """Click into the cell and press Shift+Enter, as long as the page is not ready for either."""
        with contextlib.suppress(WebDriverException):
            find(".jp-Notebook .jp-CodeCell .cm-content")[0].click()
            webdriver.ActionChains(browser).key_down(Keys.SHIFT).send_keys(Keys.ENTER).key_up(Keys.SHIFT).perform()
            return find(".jp-Notebook .jp-CodeCell .jp-InputPrompt")[0].text.strip() != "[ ]:"
        return False

    browser.get(notebook)
    try:
        wait.until(lambda _: find(".jp-Notebook-ExecutionIndicator[data-status='idle']"))
        wait.until(runs)
        (curve,) = wait.until(lambda _: find(".jp-OutputArea-output img"))
    except TimeoutException:
        pytest.fail(f"the page stayed at:\n{find('body')[0].text}")
    assert curve.size["width"] > 100
    assert find(".jp-OutputArea")[0].text.startswith("the loss fell")


@pytest.mark.engine("slurm", "apptainer build")
def test_notebook_job_of_slurm_answers_at_the_address_that_it_prints(
    workplace, built_image, image, slurm, apptainer, scratch
):
    workplace.run("convert", image, "--to", "sif", "--output", scratch / "pyg.sif").ok()
    user = in_new_clone(workplace, built_image, scratch, {**apptainer, **slurm.environment})
    _, (job, sbatch) = blocks(PAGE, "Notebooks")
    user.type(job, ("--cpus 16", "--cpus 1"))
    number = user.type(sbatch, ("sbatch ", "sbatch --parsable ")).strip()
    printed = scratch / f"{number}.out"
    try:
        until(lambda: printed.exists() and len(printed.read_text().splitlines()) >= 2, SECONDS)
        address, tunnel = printed.read_text().splitlines()[:2]
        port = re.fullmatch(r"http://127.0.0.1:(\d+)/lab\?token=[0-9a-f]{48}", address)[1]
        assert f"ssh -N -L {port}:127.0.0.1:{port} -J " in tunnel
        for words, status in ((address, "200"), (f"{address}0", "403")):
            there = words.replace("/lab?", "/api/status?")
            asked = f"srun --overlap --jobid {number} curl -s -o /dev/null -w '%{{http_code}}' '{there}'"
            until(lambda asked=asked, status=status: user.typed(asked, code=None).stdout.strip() == status, SECONDS)
    finally:
        user.type(f"scancel {number}")
        until(lambda: not slurm.jobs(), SECONDS)

"""Take screenshots of pages in headless Chromium: wide and narrow, light and dark.

`python -m tools.screenshots PAGE… --output FOLDER`, with chromium and chromedriver installed.
"""

import argparse
import base64
import tempfile
from pathlib import Path

from selenium import webdriver

WIDTHS = {"wide": 1200, "narrow": 360}


def main() -> None:
    """Write PAGE-wide-light.png and its like."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, default=Path("screenshots"))
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for word in ("--headless=new", "--no-sandbox", "--hide-scrollbars", f"--user-data-dir={profile}"):
            options.add_argument(word)
        browser = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
        try:
            for page in arguments.pages:
                browser.get(page.resolve().as_uri())
                for name, width in WIDTHS.items():
                    for scheme in ("light", "dark"):
                        data = _picture(browser, width, scheme)
                        (arguments.output / f"{page.stem}-{name}-{scheme}.png").write_bytes(data)
        finally:
            browser.quit()


def _picture(browser: webdriver.Chrome, width: int, scheme: str) -> bytes:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "format": "png"})
    return base64.b64decode(taken["data"])


if __name__ == "__main__":
    main()

"""The page at `/`, in Chromium."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")


def test_the_page_needs_nothing_from_elsewhere(serving):
    service = serving()
    answer = service.send("GET", "/")
    assert "default-src 'none'; script-src 'self'" in answer.headers["content-security-policy"]
    pages = [answer.text, *(service.send("GET", path).text for path in ("/page.css", "/page.js"))]
    assert not [part for part in pages if "http://" in part or "https://" in part]
    assert " on" + "click=" not in answer.text and "<style" not in answer.text


def test_text_is_translated_as_one_types_and_explained(address: Any, browser: Any) -> None:
    from selenium.webdriver import ActionChains, Keys
    from selenium.webdriver.support.ui import Select, WebDriverWait

    def one(selector: str) -> Any:
        return browser.find_element("css selector", selector)

    def wait_for(selector: str, beginning: str) -> None:
        def begins(_: Any) -> bool:
            return (one(selector).get_attribute("value") or one(selector).text).startswith(beginning)

        WebDriverWait(browser, 30).until(begins)

    browser.get(address())
    wait_for("#status", "2 models are served.")
    assert [each.text for each in Select(one("#source")).options] == ["Detect language", "English"]
    assert [each.text for each in Select(one("#target")).options] == ["French", "German"]
    for control in browser.find_elements("css selector", "input, select, textarea"):
        name = control.get_attribute("id")
        labels = browser.find_elements("css selector", f"label[for={name}]")
        assert labels or control.get_attribute("aria-label"), f"{name} has a label"

    one("#text").send_keys("A dog runs.\nTwo men sleep.")  # without a key that translates
    wait_for("#translation", "Ein Hund rennt.\nZwei Männer ")
    wait_for("#detected", "Detected: English")
    Select(one("#target")).select_by_visible_text("French")
    wait_for("#translation", "Un chien court.\n")
    one("#copy").click()
    wait_for("#status", "Copied.")
    one("#text").clear()
    one("#text").send_keys(Keys.CONTROL, "v")
    assert one("#text").get_attribute("value").startswith("Un chien court.\n")

    Select(one("#target")).select_by_visible_text("German")
    one("#text").clear()
    one("#text").send_keys("A dog runs. Two men sleep.", Keys.CONTROL, Keys.ENTER)
    one("#details summary").click()
    wait_for("#status", "Translated 2 sentences.")
    assert [each.text for each in Select(one("#model")).options][1:] == ["de (2rskip+ln)", "fr (2rskip+ln)"]
    assert one("#sentences .note").text == "Translated by de, with the connection 2rskip+ln."
    assert len(one(".sentence").find_elements("css selector", "td.score")) == 3
    word = browser.find_elements("css selector", ".words button")[1]
    ActionChains(browser).move_to_element(word).perform()
    assert one(".sentence [aria-live]").text.startswith("Hund: dog ")
    weights = browser.execute_script(
        "return [...document.querySelector('.words').children].map(e => Number(e.style.getPropertyValue('--weight')))"
    )
    assert len(weights) == 4 and max(weights) == weights[1]

    Select(one("#model")).select_by_visible_text("fr (2rskip+ln)")
    assert [each.text for each in Select(one("#target")).options] == ["French"]
    browser.execute_script("const e = document.getElementById('nbest'); e.max = e.value = 99")
    one("#form [type=submit]").click()
    wait_for("#status", "nbest is 99: expected at most 16")

    colours = []
    for scheme in ("light", "dark"):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        colours.append(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert colours == ["rgb(255, 255, 255)", "rgb(22, 22, 22)"]
    for width in (340, 1200):
        browser.set_window_size(width, 800)
        whole, seen = browser.execute_script(
            "const e = document.documentElement; return [e.scrollWidth, e.clientWidth]"
        )
        assert whole <= seen
    names = browser.execute_script("return performance.getEntriesByType('resource').map(e => new URL(e.name).host)")
    assert {*names} <= {browser.current_url.split("/")[2], ""}
    problems = [each["message"] for each in browser.get_log("browser") if each["level"] != "DEBUG"]
    assert [each for each in problems if "status of 400" not in each] == []

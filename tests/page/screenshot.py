"""docs/page.png: the page of a running system (`foretoken up`, a free machine), after an answer and its check.

usage: screenshot.py http://127.0.0.1:8000 docs/page.png"""

import sys

from browser import Browser

base, path = sys.argv[1].rstrip("/"), sys.argv[2]
browser = Browser()
watched = browser.watched(base, color_scheme="light")
page = watched.page
page.wait_for_function("document.getElementById('state').textContent.includes('\u25cf ready')")
page.set_viewport_size({"width": 1200, "height": 900})
page.locator("#tokens").fill("150")
page.locator("#prompt").fill("Tell me a story about a fox named Pip.")
page.keyboard.press("Enter")
turn = page.locator(".turn").last
turn.get_by_role("button", name="Same as plain?").click()
page.locator("#speeds .bar").first.wait_for()
page.wait_for_timeout(2500)  # until the table of services was looked at again
for token in turn.locator(".answer > span").all():  # one for which the model had a choice
    token.hover()
    if " or " in page.locator("#token").text_content():
        break
page.screenshot(path=path, full_page=True)
browser.close()

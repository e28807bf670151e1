"""Pages in a headless Chromium, each watched for what it must not do: fetch from elsewhere, break its policy, fail in a script."""

import faulthandler
import os
import shutil
import sys

faulthandler.dump_traceback_later(600)  # some calls of a browser have no limit of time: say which one stands still

CHROMIUM = os.environ.get("FORETOKEN_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    print("SKIPPED: Chromium is not installed (apt install chromium)")
    sys.exit(77)

from playwright.sync_api import sync_playwright  # noqa: E402

# Before any script of the page; what breaks the policy is kept for the test to read.
WATCH_POLICY = """
  window.violations = [];
  document.addEventListener("securitypolicyviolation", (event) => window.violations.push(event.violatedDirective + " " + event.blockedURI));
"""


class Browser:
    def __init__(self):
        self.playwright = sync_playwright().start()
        sandbox = [] if os.geteuid() else ["--no-sandbox"]  # which Chromium does not have for root
        self.chromium = self.playwright.chromium.launch(executable_path=CHROMIUM, args=[*sandbox, "--disable-dev-shm-usage"])

    def close(self):
        self.chromium.close()
        self.playwright.stop()

    def watched(self, base, **options):
        context = self.chromium.new_context(viewport={"width": 1280, "height": 860}, **options)
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=base)
        return WatchedPage(context, base)


class WatchedPage:
    def __init__(self, context, base):
        self.context, self.base = context, base
        self.page = context.new_page()
        self.said, self.failed, self.asked = [], [], []
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.failed.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request))
        self.page.add_init_script(WATCH_POLICY)
        self.page.goto(base + "/")

    def faults(self, expected=()):
        """Everything that went wrong: messages of the console, failures of scripts, broken policy, addresses elsewhere."""
        violations = self.page.evaluate("window.violations") or []
        elsewhere = [request.url for request in self.asked if not request.url.startswith((self.base + "/", "data:"))]
        said = [line for line in self.said if not any(part in line for part in expected)]
        return said + self.failed + violations + elsewhere

    def close(self):
        self.context.close()

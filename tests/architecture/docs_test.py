"""Docs stay true: paths and links they name exist, and every command of the README is one."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s#]+)(?:#[^)]*)?\)")
PATH = re.compile(r"`((?:common|kernels|services|tests|deploy|docs|bench|models|configs|clients|cmake)/[\w./-]+)`")


def pages():
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))
    yield from sorted((ROOT / "docs").rglob("*.md"))
    yield from sorted((ROOT / "deploy").rglob("*.md"))


def missing_targets(page, text):
    found = []
    for target in LINK.findall(text):
        if not re.match(r"[a-z]+:", target) and not (page.parent / target).exists():
            found.append(f"{page.relative_to(ROOT)}: link to {target}")
    for target in PATH.findall(text):
        if not (ROOT / target.rstrip("/.")).exists():
            found.append(f"{page.relative_to(ROOT)}: path {target}")
    return found


def unknown_commands(text):
    """Scripts that do not exist and verbs that the program does not have, in the lines that begin with "$ "."""
    verbs = re.findall(r'^    \{"([a-z -]+)",', (ROOT / "services/cli/main.cc").read_text("utf-8"), re.MULTILINE)
    found = []
    for command in re.findall(r"^\$ (\./\S+|foretoken [^#\n]+)", text, re.MULTILINE):
        said = command.removeprefix("foretoken ") + " "
        known = (ROOT / command).is_file() if command.startswith("./") else any(said.startswith(f"{verb} ") for verb in verbs)
        found += [] if known else [command.strip()]
    return found


class Docs(unittest.TestCase):
    def test_links_and_paths_exist(self):
        self.assertEqual([], [line for page in pages() for line in missing_targets(page, page.read_text("utf-8"))])

    def test_commands_of_the_readme_are_there(self):
        text = (ROOT / "README.md").read_text("utf-8")
        self.assertEqual([], unknown_commands(text))
        self.assertEqual(["./begin", "foretoken dream x"], unknown_commands("$ ./begin --yes\n$ ./check\n$ foretoken dream x\n$ foretoken ps"))

    def test_a_broken_link_is_found(self):
        broken = missing_targets(ROOT / "README.md", "[x](docs/none.md) and `common/none/none.h`")
        self.assertEqual(2, len(broken))


if __name__ == "__main__":
    unittest.main()

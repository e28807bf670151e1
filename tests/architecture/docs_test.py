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


def names_of_code(text):
    """What stands in backquotes and is a class or a function of one: `Request::on_text`, `ProposalStore`."""
    return set(re.findall(r"`((?:[A-Z][a-z]+)+[A-Za-z]*(?:::\w+)?)`", text))


def unknown_names(names, code):
    """Those whose class, or whose function, no source has."""
    words = set(re.findall(r"\w+", code))
    return sorted(name for name in names if not set(name.split("::")) <= words)


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

    def test_commands_for_a_second_system_name_all_that_two_cannot_share(self):
        section = (ROOT / "docs/operations.md").read_text("utf-8").partition("\n## Another port, a second system\n")[2].partition("\n## ")[0]
        variables = re.findall(r"(\w+)=\S+", re.search(r"^\$ export (.*)$", section, re.MULTILINE)[1])
        self.assertEqual({"FORETOKEN_BUS_CLIENT", "FORETOKEN_BUS_RUNTIME_DIR", "FORETOKEN_EDGE_PORT"}, set(variables))

    def test_names_in_the_walk_through_the_code_exist(self):
        names = names_of_code((ROOT / "docs/architecture.md").read_text("utf-8"))
        sources = [path for folder in ("common", "services", "kernels") for path in (ROOT / folder).rglob("*") if path.suffix in {".h", ".cc"}]
        code = "".join(path.read_text("utf-8") for path in sources)
        self.assertGreater(len(names), 50)
        self.assertEqual([], unknown_names(names, code))
        self.assertEqual(["Answer::no_piece", "NoClass"], unknown_names(names_of_code("`Answer::next_piece` `Answer::no_piece` `NoClass`"), code))

    def test_a_broken_link_is_found(self):
        broken = missing_targets(ROOT / "README.md", "[x](docs/none.md) and `common/none/none.h`")
        self.assertEqual(2, len(broken))


if __name__ == "__main__":
    unittest.main()

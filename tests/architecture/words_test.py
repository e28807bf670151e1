"""One word for one idea: what docs/glossary.md lists as given up appears nowhere else."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs/glossary.md"
FOLDERS = ("bench", "clients", "common", "configs", "deploy", "docs", "kernels", "services", "tests")
KINDS = {".h", ".cc", ".cu", ".cuh", ".py", ".md", ".toml", ".sh", ".txt", ".service", ".target"}


def retired_words(page):
    """The first column of the table under "Words that were given up"."""
    table = page.partition("## Words that were given up")[2]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


def found_in(text, words):
    return sorted(set(re.findall(r"\b(?:" + "|".join(words) + r")\b", text)))


def pages():
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            # Decisions are never rewritten, so old words stay in them.
            if path.suffix in KINDS and path != GLOSSARY and ROOT / "docs/adr" not in path.parents:
                yield path
    yield from ROOT.glob("*.md")


class Words(unittest.TestCase):
    def test_given_up_words_are_gone(self):
        words = retired_words(GLOSSARY.read_text("utf-8"))
        self.assertGreater(len(words), 10)
        found = {str(path.relative_to(ROOT)): found_in(path.read_text("utf-8"), words) for path in pages()}
        self.assertEqual({}, {path: words for path, words in found.items() if words})

    def test_a_given_up_word_is_found(self):
        page = "| `old` | in use |\n\n## Words that were given up\n\n| not | but |\n|---|---|\n| `crumble` | `fail` |\n"
        self.assertEqual(["crumble"], retired_words(page))
        self.assertEqual(["crumble"], found_in("void crumble();  // crumbles", ["crumble"]))


if __name__ == "__main__":
    unittest.main()

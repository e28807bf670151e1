"""One word for one idea: what docs/glossary.md lists as given up appears nowhere else, in snake_case, CamelCase or kName."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs/glossary.md"
FOLDERS = ("bench", "clients", "cmake", "common", "configs", "deploy", "docs", "kernels", "services", "tests")
KINDS = {".h", ".cc", ".cu", ".cuh", ".in", ".py", ".md", ".toml", ".conf", ".sh", ".txt", ".cmake", ".sbatch", ".service", ".target"}
ALONE = ("CMakeLists.txt", "CMakePresets.json", ".clang-format", ".clang-tidy", "check", "start", ".ci/run")
THIS = pathlib.Path(__file__).resolve()  # its examples are such words
# Parts of a name: small letters, behind one capital or none; capitals alone; digits.
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def parts_of(name):
    """kRollCallEvery, RollCall, roll_call and roll_call_every alike: roll, call, every."""
    return [part.lower() for part in PART.findall(name)]


def retired_words(page):
    """The first column of the table under "Words that were given up"."""
    table = page.partition("## Words that were given up")[2]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


def found_in(text, words):
    """Those whose parts follow one another in some name of the text."""
    names = {" " + " ".join(parts_of(name)) + " " for name in set(re.findall(r"\w+", text))}
    return sorted(word for word in words if any(" " + " ".join(parts_of(word)) + " " in name for name in names))


def pages():
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            # Decisions are never rewritten, so old words stay in them.
            if path.suffix in KINDS and path not in (GLOSSARY, THIS) and ROOT / "docs/adr" not in path.parents:
                yield path
    yield from ROOT.glob("*.md")
    yield from (ROOT / name for name in ALONE)


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
        self.assertEqual([], found_in("it crumbles", ["crumble"]))

    def test_every_spelling_of_it_is_found(self):
        for name in ("roll_call", "kRollCallEvery", "RollCall", "rollCall", "roll_call_", "FORETOKEN_ROLL_CALL", "next_roll_call"):
            self.assertEqual(["roll_call"], found_in(f"x = {name};", ["roll_call"]), name)
        for name in ("EndReason", "end_reason", "kEndReasonNames"):
            self.assertEqual(["EndReason"], found_in(f"x = {name};", ["EndReason"]), name)
        for text in ("roll, call", "scroll_call", "roll_callers", "roll_over_call"):
            self.assertEqual([], found_in(text, ["roll_call"]), text)

    def test_scripts_without_a_suffix_are_read(self):
        read = {str(path.relative_to(ROOT)) for path in pages()}
        self.assertLessEqual({"check", "start", ".ci/run", "CMakeLists.txt", "deploy/slurm/foretoken.sbatch"}, read)


if __name__ == "__main__":
    unittest.main()

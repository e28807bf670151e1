"""Manual pages and completion: from the option tree, so every flag is in them; clean to mandoc; the shells' scripts work.

usage: manual_test.py FOLDER_WITH_PROGRAMS
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(sys.argv.pop(1))
ROOT = pathlib.Path(__file__).resolve().parents[2]
VERBS = re.findall(r'^    \{"([a-z -]+)", run_', (ROOT / "services/cli/main.cc").read_text("utf-8"), re.MULTILINE)
SERVICES = sorted(path.name for path in BIN.iterdir() if re.fullmatch(r"foretoken-(draft|edge|router|target|tokenizer)", path.name))
ALONE = {**{name: value for name, value in os.environ.items() if not name.startswith("FORETOKEN_")},
         "FORETOKEN_BUS_CLIENT": "tcp://127.0.0.1:1", "PATH": f"{BIN}:{os.environ['PATH']}"}


def run(*words, program="foretoken", environment=ALONE):
    return subprocess.run([str(BIN / program), *words], capture_output=True, text=True, timeout=60, env=environment)


def plain(page):
    """A page without the marks of roff."""
    return re.sub(r"\\f[BIR]|\\&", "", page).replace("\\-", "-").replace("\\(aq", "'")


def complete(*words):
    """The words that may stand last in the line."""
    done = run("complete", "--", *words)
    assert (done.returncode, done.stderr) == (0, ""), done
    return [line.split("\t")[0] for line in done.stdout.splitlines()]


class Manual(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.names = complete("help", "--man", "")
        cls.pages = {}
        for name in cls.names:
            done = run("help", "--man", name)
            assert (done.returncode, done.stderr) == (0, ""), done
            cls.pages[name] = done.stdout

    def test_every_verb_service_and_the_file_have_a_page(self):
        wanted = {"foretoken", "foretoken.toml", *SERVICES, *("foretoken-" + verb.replace(" ", "-") for verb in VERBS)}
        self.assertGreaterEqual(len(SERVICES), 4)
        self.assertLessEqual(wanted, set(self.names))
        self.assertEqual([], sorted(set(self.names) - wanted - {f"foretoken-{group}" for group in ("bench", "model", "config")}))

    def test_a_page_has_every_flag_of_the_help(self):
        for verb in VERBS:
            flags = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", run(*verb.split(), "--help").stdout.partition("Examples:")[0]))
            self.assertIn("--config", flags)
            page = plain(self.pages["foretoken-" + verb.replace(" ", "-")])
            self.assertEqual([], sorted(flag for flag in flags if not re.search(rf"^{flag}\b|, {flag}\b|{flag}", page)), verb)
            self.assertIn(f"foretoken {verb}", page)

    def test_the_file_has_every_key(self):
        page = plain(self.pages["foretoken.toml"])
        keys = re.findall(r"^([a-z_]+) = ", (ROOT / "configs/foretoken.toml").read_text("utf-8"), re.MULTILINE)
        self.assertGreater(len(keys), 30)
        self.assertEqual([], [key for key in keys if f"\n{key}\n" not in page])

    def test_services_print_their_own(self):
        for service in SERVICES:
            self.assertEqual(run("--man", program=service).stdout, self.pages[service])
            self.assertIn(".TH \"" + service.upper().replace("-", "\\-") + "\" 8 ", self.pages[service])

    def test_every_page_that_is_referred_to_is_there_in_that_section(self):
        sections = {name: re.search(r'^\.TH "[^"]*" (\d)', page, re.MULTILINE).group(1) for name, page in self.pages.items()}
        for name, page in self.pages.items():
            for other, section in re.findall(r"(foretoken[a-z.-]*) ?\((\d)\)", page.replace("\\-", "-")):
                self.assertEqual(section, sections.get(other), f"{other} in {name}")

    def test_verbs_may_be_words(self):
        self.assertEqual(self.pages["foretoken-bench-serve"], run("help", "--man", "bench", "serve").stdout)
        self.assertEqual(self.pages["foretoken"], run("help", "--man").stdout)

    def test_a_page_that_is_not_there(self):
        done = run("help", "--man", "bench", "server")
        self.assertEqual((2, ""), (done.returncode, done.stdout))
        self.assertIn("did you mean `foretoken help --man foretoken-bench-serve`?", done.stderr)

    def test_the_date_is_the_one_of_a_reproducible_build(self):
        page = run("help", "--man", environment={**ALONE, "SOURCE_DATE_EPOCH": "86400"}).stdout
        self.assertIn(' 1 1970-01-02 "Foretoken ', page.splitlines()[0])

    def lint(self, page):
        done = subprocess.run(["mandoc", "-T", "lint", "-W", "style"], input=page, capture_output=True, text=True, timeout=60)
        # Pages refer to one another and not to installed ones; EX and EE are known to groff and mandoc alike.
        return [line for line in done.stdout.splitlines() if "referenced manual not found" not in line]

    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not installed")
    def test_mandoc_has_nothing_to_say(self):
        for name, page in self.pages.items():
            self.assertEqual([], self.lint(page), name)
        self.assertNotEqual([], self.lint(self.pages["foretoken"] + ".XY\n"))

    @unittest.skipUnless(shutil.which("groff"), "groff is not installed")
    def test_groff_has_nothing_to_say(self):
        for name, page in self.pages.items():
            done = subprocess.run(["groff", "-man", "-ww", "-z", "-K", "utf8"], input=page, capture_output=True, text=True, timeout=60)
            self.assertEqual((0, ""), (done.returncode, done.stderr), name)


class Completion(unittest.TestCase):
    def test_verbs(self):
        self.assertLessEqual({verb.split()[0] for verb in VERBS} | {"help"}, set(complete("")))
        self.assertEqual(["serve", "schedule"], complete("bench", "s"))
        self.assertEqual(["model"], complete("mod"))
        self.assertEqual(["serve", "latency", "acceptance", "compare", "micro", "schedule", "memory"], complete("help", "bench", ""))
        self.assertIn("foretoken-bench-serve", complete("help", "--man", "foretoken-b"))
        self.assertEqual([], complete("no-such-verb"))

    def test_flags(self):
        self.assertEqual(["--detach"], complete("up", "--det"))
        self.assertEqual(["--port"], complete("up", "--host", "127.0.0.1", "--po"))
        self.assertNotIn("--ready-fd", complete("up", "--"))  # internal
        self.assertEqual(["--timeout"], complete("generate", "--seed", "7", "--timeo"))
        self.assertEqual(["--timeout"], complete("generate", "--seed=7", "--timeo"))

    def test_values(self):
        self.assertEqual(["bfloat16"], complete("up", "--dtype", "b"))
        self.assertEqual(["--dtype=bfloat16"], complete("up", "--dtype=b"))
        self.assertEqual(["bash", "zsh", "fish"], complete("completion", ""))
        self.assertEqual(["ngram"], complete("generate", "--proposer", "ng"))
        self.assertEqual(["int8", "int4", "fp8"], complete("model", "quantize", "folder", "out", "--to", ""))
        self.assertEqual([], complete("generate", "--seed", ""))

    def test_keys_of_the_configuration(self):
        self.assertEqual([f"speculation.proposer={name}" for name in ("draft", "ngram", "memory", "none")],
                         complete("ps", "--set", "speculation.prop"))
        self.assertEqual(["bus.insecure=true", "bus.insecure=false"], complete("ps", "--set", "bus.insecure"))
        self.assertEqual(["bus.runtime_dir="], complete("ps", "--set", "bus.run"))

    def test_silent_without_a_server(self):
        self.assertEqual([], complete("generate", "--model", ""))
        self.assertEqual([], complete("generate", "--set", "bus.client=nonsense", "--model", ""))
        self.assertEqual([], complete("generate", "--config", "/nowhere.toml", "--model", ""))

    def test_a_flag_that_is_offered_is_one(self):
        for verb in VERBS:
            words = verb.split()
            helped = run(*words, "--help").stdout
            for flag in complete(*words, "--"):
                self.assertIn(flag, helped, verb)

    def in_bash(self, *words):
        """COMPREPLY for a line that bash has cut into these words."""
        line = " ".join(f"'{word}'" for word in words)
        script = f"source <(foretoken completion bash); COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; " \
                 "compopt() { :; }; _foretoken foretoken; printf '%s\\n' \"${COMPREPLY[@]}\""
        done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, timeout=60, env=ALONE)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        return done.stdout.split()

    def test_bash(self):
        self.assertEqual(["serve"], self.in_bash("foretoken", "bench", "se"))
        self.assertEqual(["bfloat16"], self.in_bash("foretoken", "up", "--dtype", "=", "b"))
        self.assertEqual(["ngram"], self.in_bash("foretoken", "ps", "--set", "speculation.proposer", "=", "ng"))
        self.assertEqual(["bus.runtime_dir="], self.in_bash("foretoken", "ps", "--set", "bus.run"))
        self.assertEqual([], self.in_bash("foretoken", "ps", "--set", "bus.client", "=", "tcp", ":", "//1"))

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh(self):
        script = "compdef() { print registered $2 }; source <(foretoken completion zsh); " \
                 "_describe() { print -l -- ${(P)2} }; _files() { print files }; " \
                 "words=(foretoken up --dt); CURRENT=3 PREFIX=--dt; _foretoken; " \
                 "words=(foretoken ps --set bus.run); CURRENT=4 PREFIX=bus.run; _foretoken; " \
                 "words=(foretoken generate --seed ''); CURRENT=4 PREFIX=; _foretoken"
        done = subprocess.run(["zsh", "-f", "-c", script], capture_output=True, text=True, timeout=60, env=ALONE)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        lines = done.stdout.splitlines()
        self.assertEqual("registered foretoken", lines[0])
        self.assertTrue(lines[1].startswith("--dtype:"), lines)
        self.assertEqual(["bus.runtime_dir=", "files"], lines[2:])

    @unittest.skipUnless(shutil.which("fish"), "fish is not installed")
    def test_fish(self):
        with tempfile.TemporaryDirectory() as home:
            script = "source (foretoken completion fish | psub); complete -C 'foretoken up --dt'; complete -C 'foretoken bench se'"
            done = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, timeout=60,
                                  env={**ALONE, "HOME": home})
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(["--dtype", "serve"], [line.split("\t")[0] for line in done.stdout.splitlines()])


if __name__ == "__main__":
    unittest.main()

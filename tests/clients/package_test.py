"""The Python client as a package: the wheel that pip makes of clients/python, installed in a virtual environment of its own, and
what mypy --strict says of programs that use it there."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TYPED = pathlib.Path(__file__).resolve().parent / "typed"
VERSION = re.search(r"project\(foretoken VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="foretoken-wheel-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        # A copy: setuptools writes beside its sources.
        shutil.copytree(ROOT / "clients/python", cls.folder / "source", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
        cls.from_index(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", cls.folder, cls.folder / "source")
        (cls.wheel,) = cls.folder.glob("*.whl")
        cls.must(sys.executable, "-m", "venv", cls.folder / "venv")
        cls.python = cls.folder / "venv/bin/python"
        cls.from_index(cls.python, "-m", "pip", "install", "--quiet", cls.wheel)

    @classmethod
    def must(cls, *words):
        status, said = run(*words)
        if status != 0:
            raise AssertionError(f"{words}: {status}\n{said}")

    @classmethod
    def from_index(cls, *words):
        """A command of pip, which takes setuptools, pyzmq and msgpack from the package index. SKIPPED where that does not give them to anyone."""
        status, said = run(*words, "--retries", "1", "--timeout", "30")
        if status == 0:
            return
        for package in ("setuptools", "pyzmq", "msgpack"):
            answered, why = run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--retries", "1", "--timeout", "30",
                                "--dest", cls.folder / "probe", package)
            if answered != 0:
                print(f"SKIPPED: PyPI does not give {package}: {why.strip().splitlines()[-1]}", flush=True)
                shutil.rmtree(cls.folder)
                os._exit(77)
        raise AssertionError(f"{words}: {status}\n{said}")

    def mypy(self, *paths):
        """Status, and line -> code of what it finds."""
        status, said = run(sys.executable, "-m", "mypy", "--strict", "--python-executable", self.python, "--cache-dir", self.folder / "cache",
                           "--no-error-summary", "--hide-error-context", *paths)
        return status, said, {int(at): code for at, code in re.findall(r"^[^:\n]+:(\d+): error: .*  (\[[a-z-]+\])$", said, re.MULTILINE)}

    def test_the_wheel_has_the_package_and_its_types_alone(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            own = {name for name in wheel.namelist() if ".dist-info/" not in name}
            (about,) = (wheel.read(name).decode() for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        sources = {f"foretoken/{path.name}" for path in (ROOT / "clients/python/foretoken").iterdir() if path.is_file()}
        self.assertEqual(sources, own)
        self.assertIn("foretoken/py.typed", own)
        self.assertIn(f"\nVersion: {VERSION}\n", about)
        self.assertIn("\nRequires-Python: >=3.9\n", about)

    def test_the_installed_package_says_its_version(self):
        program = "import foretoken, importlib.metadata as m; print(foretoken.__version__, m.version('foretoken'), foretoken.__file__)"
        status, said = run(self.python, "-I", "-c", program)
        self.assertEqual((0, [VERSION, VERSION]), (status, said.split()[:2]), said)
        self.assertTrue(said.split()[2].startswith(str(self.folder)), said)

    def test_a_users_file_with_every_method_is_clean(self):
        status, said, _ = self.mypy(TYPED / "user.py")
        self.assertEqual((0, ""), (status, said))

    def test_that_file_has_every_method(self):
        text = (TYPED / "user.py").read_text()
        blocking, asynchronous = text.split("async def asynchronous")
        self.assertEqual(self.methods("Client"), set(re.findall(r"client\.(\w+)\(", blocking)))
        self.assertEqual(self.methods("Client"), self.methods("AsyncClient"))
        self.assertEqual(self.methods("AsyncClient"), set(re.findall(r"client\.(\w+)\(", asynchronous)))

    def methods(self, name):
        status, said = run(self.python, "-I", "-c", f"import foretoken; print(*(each for each in dir(foretoken.{name}) if each[0] != '_' "
                                                    f"and callable(getattr(foretoken.{name}, each))))")
        self.assertEqual(0, status, said)
        return set(said.split())

    def test_each_mistake_is_found(self):
        lines = (TYPED / "mistakes.py").read_text().splitlines()
        wanted = {at: found[1] for at, line in enumerate(lines, 1) if (found := re.search(r"  # (\[[a-z-]+\])$", line))}
        self.assertGreater(len(wanted), 10)
        status, said, found = self.mypy(TYPED / "mistakes.py")
        self.assertEqual((1, wanted), (status, found), said)

    def test_the_package_itself_is_clean(self):
        # msgpack has no types of its own.
        config = self.folder / "mypy.ini"
        config.write_text("[mypy]\n[mypy-msgpack.*]\nignore_missing_imports = True\n")
        status, said, _ = self.mypy("--config-file", config, self.folder / "source/foretoken")
        self.assertEqual((0, ""), (status, said))


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    unittest.main()

"""The Debian packages: packed twice to the same bytes, clean to lintian, and installed, used, upgraded, removed and purged in
a root made by debootstrap, once with `foretoken up` and once with the units under a systemd that boots there. Needs root, a
Debian mirror and some minutes.

usage: packages_test.py SOURCE_FOLDER, with a Python that has OpenAI's client
FORETOKEN_TEST_ROOT names a root that debootstrap has made, to be copied instead of making one.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
READY_ROOT = os.environ.get("FORETOKEN_TEST_ROOT")
BUILD = SOURCE / "build/package"
# Runs where systemd has booted, behind a line units='...'; each "== title" begins a part of what it says.
UNITS_SCRIPT = r"""
running() { systemctl list-units --plain --no-legend --state=running 'foretoken*'; }
pids() { for unit in $units; do systemctl show -P MainPID $unit; done | sort; }
# Until a fact, at most two minutes; then the states, which say why not.
wait_until_ready() { for i in $(seq 240); do foretoken ps 2>/dev/null | grep -q '^ready' && return; sleep 0.5; done; foretoken ps; }
echo '== verified'
systemd-analyze verify --man=no $units foretoken.target
echo '== enabled by the package'
systemctl list-unit-files --no-legend --state=enabled 'foretoken*'
systemctl enable -q --now $units foretoken.target
wait_until_ready
echo '== running'
running | cut -d' ' -f1
echo '== text'
foretoken generate --seed 7 -n 32 'Once upon a time'
pids >/pids
echo '== upgrade'
dpkg -i /packages/2/foretoken_*.deb
echo '== processes'
pids | cmp - /pids && echo the same
echo '== restarted'
for unit in $units; do systemctl restart $unit; done
wait_until_ready
pids | comm -12 - /pids
foretoken generate --seed 7 -n 32 'Once upon a time'
echo '== removed'
dpkg --remove foretoken >/dev/null
running
echo '== purged'
dpkg --purge foretoken foretoken-demo-models >/dev/null
find /etc /usr /var /run -name '*foretoken*' ! -path '/var/lib/dpkg/*' ! -path '/var/log/*'
echo '== end'
"""
# A question to the server of README's commands, streamed and whole.
CLIENT_SCRIPT = """
import openai

client = openai.OpenAI(base_url="http://localhost:8000/v1", api_key="any")
question = {"model": "demo", "messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 64, "seed": 7}
pieces = [chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(stream=True, **question)]
whole = client.chat.completions.create(**question).choices[0].message.content
assert "".join(pieces) == whole, (pieces, whole)
print(f"{sum(piece != '' for piece in pieces)} pieces, {len(whole)} characters")
"""
MIRROR = "http://deb.debian.org/debian"
SKIPPED = 77


def must(*words, **more):
    done = subprocess.run(words, capture_output=True, text=True, **more)
    if done.returncode != 0:
        raise AssertionError(f"{words}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="foretoken-packages-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.environment = {**os.environ, "SOURCE_DATE_EPOCH": "1795392000"}
        must("cmake", "--preset", "package", "-DFORETOKEN_PACKAGE_REVISION=1", cwd=SOURCE, env=cls.environment)
        must("ninja", "-C", str(BUILD), "foretoken_programs", env=cls.environment)
        cls.roles = [role for role in ("draft", "target", "tokenizer", "router", "edge") if (BUILD / f"bin/foretoken-{role}").exists()]
        cls.first = cls.packed("first")
        cls.again = cls.packed("again")
        must("cmake", "--preset", "package", "-DFORETOKEN_PACKAGE_REVISION=2", cwd=SOURCE, env=cls.environment)
        cls.newer = cls.packed("newer")
        must("cmake", "--preset", "package", "-DFORETOKEN_PACKAGE_REVISION=1", cwd=SOURCE, env=cls.environment)

    @classmethod
    def packed(cls, name):
        """Name of the package -> file."""
        folder = cls.folder / name
        # gzip: xz takes minutes over the models' weights, and there is little in them to compress.
        must("cpack", "-D", f"CPACK_PACKAGE_DIRECTORY={folder}", "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip", cwd=BUILD,
             env=cls.environment)
        return {path.name.split("_")[0]: path for path in folder.iterdir() if path.suffix in (".deb", ".ddeb")}

    def test_there_are_these(self):
        wanted = {"foretoken", "foretoken-dbgsym", "foretoken-demo-models", "python3-foretoken"}
        if (BUILD / "lib/libforetoken_cuda.so").exists():
            wanted |= {"foretoken-cuda", "foretoken-cuda-dbgsym"}
        self.assertEqual(wanted, set(self.first))

    def test_packing_twice_gives_the_same_bytes(self):
        for name, path in self.first.items():
            self.assertEqual(path.read_bytes(), self.again[name].read_bytes(), name)

    def test_the_python_package_says_that_it_has_types(self):
        listing = must("dpkg-deb", "-c", str(self.first["python3-foretoken"]))
        for name in ("py.typed", "messages.py", "__init__.py"):
            self.assertRegex(listing, rf"-rw-r--r-- .*/usr/lib/python3/dist-packages/foretoken/{name}\n")

    def test_no_path_of_this_machine_and_no_rpath(self):
        tree = self.folder / "tree"
        must("dpkg-deb", "-x", str(self.first["foretoken"]), str(tree))
        for program in (tree / "usr/bin").iterdir():
            self.assertNotIn(str(SOURCE).encode(), program.read_bytes(), program.name)
            dynamic = must("readelf", "-dW", str(program))
            self.assertNotRegex(dynamic, "RPATH|RUNPATH")
            self.assertRegex(dynamic, "FLAGS.*BIND_NOW")
            self.assertRegex(must("readelf", "-hW", str(program)), "Type: *DYN")
            symbols = must("readelf", "--dyn-syms", "-W", str(program))
            self.assertIn("__stack_chk_fail", symbols, program.name)
            self.assertRegex(symbols, "__[a-z]+_chk@", program.name)

    def test_lintian_has_nothing_to_say(self):
        done = subprocess.run(["lintian", "--allow-root", "--pedantic", "--fail-on", "error,warning",
                               *[str(path) for path in self.first.values()]], capture_output=True, text=True, timeout=600)
        self.assertEqual((0, ""), (done.returncode, done.stdout), done.stderr)

    def make_root(self, name):
        self.root = self.folder / name
        if READY_ROOT:
            must("cp", "-a", READY_ROOT, str(self.root))
        else:
            must("debootstrap", "--variant=minbase", "bookworm", str(self.root), MIRROR)
        shutil.copy("/etc/resolv.conf", self.root / "etc/resolv.conf")
        (self.root / "etc/hosts").write_text("127.0.0.1 localhost\n")
        for revision, packages in (("1", self.first), ("2", self.newer)):
            folder = self.root / "packages" / revision
            folder.mkdir(parents=True)
            for package in ("foretoken", "foretoken-demo-models", "python3-foretoken"):
                shutil.copy(packages[package], folder)
        self.inside("apt-get update -qq")

    @unittest.skipUnless(shutil.which("systemd-nspawn"), "systemd-container is not installed")
    def test_units_serve_upgrade_and_leave_under_systemd(self):
        self.make_root("booted")
        self.inside("apt-get install -y -qq --no-install-recommends systemd systemd-sysv dbus init-system-helpers "
                    "/packages/1/foretoken_*.deb /packages/1/foretoken-demo-models_*.deb")
        services = [f"foretoken-{role}.service" if role == "edge" else f"foretoken-{role}@0.service" for role in self.roles]
        (self.root / "try.sh").write_text(f"units='{' '.join(services)}'\n" + UNITS_SCRIPT)
        unit = self.root / "etc/systemd/system/try.service"
        unit.write_text("[Unit]\nAfter=basic.target\n[Service]\nType=oneshot\nExecStart=/bin/sh /try.sh\n"
                        "StandardOutput=append:/said\nStandardError=append:/said\nTimeoutStartSec=600\n"
                        "ExecStopPost=/bin/systemctl poweroff --no-block\n")
        (self.root / "etc/systemd/system/multi-user.target.wants/try.service").symlink_to("../try.service")
        must("systemd-nspawn", "--quiet", f"--directory={self.root}", "--register=no", "--keep-unit", "--private-network",
             "--machine=foretoken-test", "--boot", timeout=900)
        text = (self.root / "said").read_text()
        said = {part.split("\n")[0]: part.split("\n")[1:-1] for part in text.split("== ")[1:]}
        self.assertIn("end", said, text)
        self.assertEqual([], [line for line in said["verified"] if "foretoken" in line])
        self.assertEqual([], said["enabled by the package"])
        self.assertEqual(sorted(services), said["running"], text)
        self.assertGreater(len("".join(said["text"])), 50)
        self.assertIn("foretoken: these services run the programs of version 0.1.0-1 until they are restarted, drafts first, "
                      "then targets:", said["upgrade"])
        self.assertEqual(sorted(services), [line.strip() for line in said["upgrade"] if line.startswith("  foretoken-")])
        self.assertEqual(["the same"], said["processes"])
        self.assertEqual(said["text"], said["restarted"], "the text of before, and no process of before")
        self.assertEqual([], said["removed"])
        self.assertEqual([], said["purged"])

    def test_install_use_upgrade_remove_purge(self):
        self.make_root("root")
        before = self.files()
        self.assertEqual([], [path for path in before if "foretoken" in path])

        self.inside("apt-get install -y -qq --no-install-recommends /packages/1/*.deb")
        self.assertEqual([], [path for path in self.files() if path.startswith("/etc/systemd") and "foretoken" in path])
        self.configuration_is_all_default()
        self.a_newcomer_gets_a_streamed_answer()
        file = self.root / "etc/foretoken/foretoken.toml"
        file.write_text(file.read_text().replace("#level = \"info\"", "level = \"warning\""))

        said = self.inside("""
            export FORETOKEN_BUS_CLIENT=ipc://client
            foretoken up --detach
            foretoken generate --raw --seed 7 -n 32 'Once upon a time' >/tmp/plain
            foretoken demo --quiet --repeat 1 -n 32 --json
            python3 -c 'from foretoken import Client; import sys
with Client() as client:
    sys.stderr.write(client.generate("Once upon a time", max_tokens=32, seed=7).text)' 2>/tmp/python
            apt-get install -y -qq --no-install-recommends /packages/2/*.deb
            readlink /proc/[0-9]*/exe | grep -c '^/usr/bin/foretoken-.* (deleted)$'
            foretoken generate --raw --seed 7 -n 32 'Once upon a time' | cmp - /tmp/plain
            foretoken down
        """, "--net")  # its own ports; the packages that these need are there
        self.assertIn('"identical": true', said)
        self.assertEqual((self.root / "tmp/plain").read_text().strip(), (self.root / "tmp/python").read_text().strip())
        self.assertIn(f"\n{len(self.roles)}\n", said, "every service runs on a replaced program")
        self.assertIn("\nlevel = \"warning\"", file.read_text(), "a site's change is kept")
        self.assertEqual("0.1.0-2", self.inside("dpkg-query -W -f '${Version}' foretoken"))

        # What a site may have made.
        self.inside("""
            mkdir -p /etc/foretoken/keys.d /etc/systemd/system/foretoken-draft.target.wants /var/lib/private/foretoken /srv/models
            touch /etc/foretoken/keys.d/draft-0.key /srv/models/foretoken-kept
            ln -s /usr/lib/systemd/system/foretoken-draft@.service /etc/systemd/system/foretoken-draft.target.wants/foretoken-draft@0.service
        """)
        self.inside("apt-get remove -y -qq foretoken foretoken-demo-models python3-foretoken")
        left = [path for path in self.files() if "foretoken" in path]
        self.assertIn("/etc/foretoken/foretoken.toml", left)
        self.assertIn("/etc/foretoken/keys.d/draft-0.key", left)
        self.assertEqual([], [path for path in left if path.startswith("/usr/")])
        self.inside("apt-get purge -y -qq foretoken foretoken-demo-models python3-foretoken")
        self.assertEqual(["/srv/models/foretoken-kept"], [path for path in self.files() if "foretoken" in path])
        self.assertEqual([], [path for path in self.files("/etc/systemd") if path not in before])

    def a_newcomer_gets_a_streamed_answer(self):
        (self.root / "packages/ask.py").write_text(CLIENT_SCRIPT)
        (self.root / "packages/client").mkdir()
        said = self.inside("""
            foretoken up --detach
            PYTHONPATH=/packages/client python3 -B /packages/ask.py
            foretoken down
        """, "--net", folders={sysconfig.get_paths()["purelib"]: "packages/client"})
        counts = re.search(r"(\d+) pieces, (\d+) characters", said)
        self.assertIsNotNone(counts, said)
        self.assertGreater(int(counts[1]), 1, said)
        self.assertGreater(int(counts[2]), 50, said)

    def configuration_is_all_default(self):
        shown = self.inside("foretoken config check && foretoken config show --origin")
        self.assertIn("# configuration file: /etc/foretoken/foretoken.toml", shown)
        values = [line for line in shown.splitlines() if " = " in line]
        self.assertGreater(len(values), 30)
        self.assertEqual([], [line for line in values if not line.endswith("# default")])

    def inside(self, script, *namespaces, folders=None):
        """The shell in the root, with processes of its own: whatever it leaves running ends with it. `folders` of this machine are
        seen where they are said to be."""
        before = "ip link set lo up\n" if "--net" in namespaces else ""
        before += "".join(f"mount --bind '{ours}' '{self.root}/{theirs}'\n" for ours, theirs in (folders or {}).items())
        return must("unshare", "--mount", "--pid", *namespaces, "--fork", "--kill-child", "/bin/sh", "-euc",
                    before + 'exec chroot "$0" /bin/sh -euc "$1"', str(self.root), "mount -t proc proc /proc\n" + script, timeout=900,
                    env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"})

    def files(self, below="/"):
        """What the packages and the services made: not their own files, nor dpkg's and apt's records of them."""
        found = self.inside(f"find {below} -xdev ! -path '/packages*' ! -path '/var/lib/dpkg/*' ! -path '/var/log/*' "
                            "! -path '/var/cache/*' ! -path '/tmp/*' ! -path '/proc*' -print")
        return sorted(found.splitlines())


if __name__ == "__main__":
    missing = [program for program in ("lintian", "debootstrap", "unshare", "cpack") if shutil.which(program) is None]
    if os.geteuid() != 0 or missing:
        print("SKIPPED: needs root" if not missing else f"SKIPPED: not installed: {', '.join(missing)}")
        sys.exit(SKIPPED)
    unittest.main()

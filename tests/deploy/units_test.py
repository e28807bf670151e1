"""The installed systemd units: they name files of the prefix that are there, systemd verifies them without a warning, and
they are as hard as operations says.

usage: units_test.py BUILD_FOLDER
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv.pop(1))
# Highest exposure that systemd-analyze security may report; lower is better, a bare unit scores 9.6. The tokenizer
# pays 0.1 for its regular-expression compiler, router and edge for their TCP ports.
EXPOSURE = {"router": 1.2, "tokenizer": 0.5, "draft": 0.5, "memory": 0.5, "target": 0.5}
if (BUILD / "bin/foretoken-edge").exists():
    EXPOSURE["edge"] = 1.2
ROLES = tuple(EXPOSURE)
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/operations.md"


def unit_of(role):
    return "foretoken-edge.service" if role == "edge" else f"foretoken-{role}@.service"


def program_of(role):
    return "foretoken-draft" if role == "memory" else f"foretoken-{role}"


def group_of(role):
    """The target that all services like this one are part of."""
    return "foretoken-draft.target" if role == "memory" else f"foretoken-{role}.target"


def instance_of(role):
    return unit_of(role).replace("@", "@0")


def install(prefix, root=None):
    """Installs what a plain `cmake --install` does; root is DESTDIR."""
    environment = {**os.environ, "DESTDIR": str(root)} if root else os.environ
    subprocess.run(["cmake", "--install", str(BUILD), "--prefix", str(prefix)], check=True, capture_output=True,
                   text=True, timeout=120, env=environment)


class Units(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.prefix = pathlib.Path(tempfile.mkdtemp(prefix="foretoken-prefix-"))
        cls.addClassCleanup(shutil.rmtree, cls.prefix)
        install(cls.prefix)
        cls.units = cls.prefix / "lib/systemd/system"

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="foretoken-units-"))
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copytree(self.units, self.folder, dirs_exist_ok=True)
        for role in ROLES:  # verify wants an instance name
            if unit_of(role) != instance_of(role):
                shutil.copy(self.folder / unit_of(role), self.folder / instance_of(role))

    def verify(self, *names):
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", *[str(self.folder / n) for n in names]],
                              capture_output=True, text=True, timeout=60)
        return done.returncode, [line for line in done.stderr.splitlines() if "foretoken" in line]

    def named_files(self, unit):
        """The program and the page that a unit names."""
        settings = dict(self.settings(unit))
        return settings["ExecStart"].split()[0], settings["Documentation"].removeprefix("file:")

    def test_units_name_files_of_the_prefix(self):
        for role in ROLES:
            program, page = self.named_files(unit_of(role))
            self.assertEqual(str(self.prefix / "bin" / program_of(role)), program)
            self.assertTrue(os.access(program, os.X_OK), program)
            self.assertTrue(pathlib.Path(page).is_relative_to(self.prefix) and pathlib.Path(page).is_file(), page)
        leftover = [path for path in self.units.rglob("*") if path.is_file() and re.search(r"@[A-Z]+@", path.read_text())]
        self.assertEqual([], leftover)

    def test_units_in_a_staging_root_name_the_prefix_alone(self):
        root = pathlib.Path(tempfile.mkdtemp(prefix="foretoken-root-"))
        self.addCleanup(shutil.rmtree, root)
        install("/usr", root)
        self.assertFalse((root / "etc").exists(), "a site's configuration is its own")
        for role in ROLES:
            text = (root / "usr/lib/systemd/system" / unit_of(role)).read_text()
            self.assertIn(f"\nExecStart=/usr/bin/{program_of(role)} ", text)
            self.assertIn("\nDocumentation=file:/usr/share/doc/foretoken/docs/operations.md\n", text)
            self.assertTrue((root / "usr/bin" / program_of(role)).is_file())
        self.assertTrue((root / "usr/share/doc/foretoken/docs/operations.md").is_file())

    def test_a_unit_is_there_if_its_program_is(self):
        # The command and the program that its verb import-triton runs are no services.
        programs = {path.name for path in (self.prefix / "bin").iterdir()} - {"foretoken", "foretoken-import-triton"}
        services = {re.sub(r"@?\.service$", "", path.name) for path in self.units.glob("foretoken-*.service")}
        # A memory is a draft with a flag.
        self.assertEqual(programs | {"foretoken-memory"}, services)
        drop_ins = {re.sub(r"@?\.service\.d$", "", path.name) for path in self.units.glob("foretoken-?*.service.d")}
        self.assertLessEqual(drop_ins, services)

    def test_units_verify_without_a_warning(self):
        names = [instance_of(role) for role in ROLES] + ["foretoken.target"]
        self.assertEqual((0, []), self.verify(*names))

    def test_verify_would_notice(self):
        unit = self.folder / "foretoken-draft@0.service"
        unit.write_text(unit.read_text().replace("WatchdogSec=10", "WatchdogSec=often"))
        self.assertNotEqual([], self.verify(unit.name)[1])

    def exposure_of(self, unit):
        done = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--no-pager", str(unit)], capture_output=True,
                              text=True, timeout=60)
        match = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
        self.assertIsNotNone(match, done.stdout + done.stderr)
        return float(match.group(1))

    def test_exposure_is_within_bounds(self):
        for role, limit in EXPOSURE.items():
            self.assertLessEqual(self.exposure_of(self.folder / instance_of(role)), limit, role)

    def test_units_of_another_prefix_are_as_hard_where_the_page_puts_them(self):
        command = re.search(r"those of another prefix.*?`(.*?)`", PAGE.read_text(), re.DOTALL).group(1)
        site = pathlib.Path(tempfile.mkdtemp(prefix="foretoken-site-"))
        self.addCleanup(shutil.rmtree, site)
        self.assertIn(" /etc/systemd/system", command)
        subprocess.run(["sh", "-ec", command.replace("/etc/systemd/system", str(site)).replace("PREFIX", str(self.prefix))], check=True)
        for role, limit in EXPOSURE.items():
            if unit_of(role) != instance_of(role):
                shutil.copy(site / unit_of(role), site / instance_of(role))
            self.assertLessEqual(self.exposure_of(site / instance_of(role)), limit, role)

    def test_a_target_with_ranks_is_nearly_as_hard(self):
        drop_ins = self.folder / "foretoken-target@.service.d"
        drop_ins.mkdir(exist_ok=True)
        source = pathlib.Path(__file__).resolve().parents[2] / "deploy/ranks/50-ranks.conf"
        shutil.copy(source, drop_ins)
        self.assertEqual((0, []), self.verify("foretoken-target@0.service"))
        done = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--no-pager",
                               str(self.folder / "foretoken-target@0.service")], capture_output=True, text=True, timeout=60)
        exposure = float(re.search(r"exposure level for \S+: ([\d.]+)", done.stdout).group(1))
        self.assertLessEqual(exposure, 0.8)
        self.assertGreater(exposure, 0.5, "the drop-in is read")

    def test_a_target_on_a_gpu_sees_devices_and_little_else(self):
        unit = self.folder / "foretoken-target@0.service"
        exposures = []
        for drop_in in (None, "gpu/60-gpu.conf"):
            if drop_in:
                shutil.copy(pathlib.Path(__file__).resolve().parents[2] / "deploy" / drop_in, self.folder / "foretoken-target@.service.d")
            self.assertEqual((0, []), self.verify(unit.name))
            done = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--no-pager", str(unit)],
                                  capture_output=True, text=True, timeout=60)
            exposures.append(float(re.search(r"exposure level for \S+: ([\d.]+)", done.stdout).group(1)))
            self.assertRegex(done.stdout, f"{'✗' if drop_in else '✓'} PrivateDevices=")
        self.assertLess(exposures[0], exposures[1])
        self.assertLessEqual(exposures[1], 1.3)

    def test_the_command_of_the_page_enables_a_unit_of_each_service(self):
        section = PAGE.read_text().split("\n## Under systemd\n")[1].split("\n## ")[0]
        enabled = re.search(r"^\$ systemctl enable --now (.*)$", section, re.MULTILINE).group(1).split()
        needed = {instance_of(role).removesuffix(".service") for role in ROLES if role != "memory"} | {"foretoken.target"}
        self.assertLessEqual(needed, set(enabled))

    def test_an_upgrade_as_the_page_has_it_restarts_each_service(self):
        section = PAGE.read_text().split("\n## Upgrading\n")[1]
        restarted = re.search(r"then restart (.*?), one service at a time", section, re.DOTALL).group(1)
        for role in ROLES:
            self.assertRegex(restarted, rf"\b{role}s?\b")

    def test_a_memory_has_a_flag_and_the_folder_of_the_page(self):
        settings = dict(self.settings(unit_of("memory")))
        self.assertIn(" --memory", settings["ExecStart"])
        drop_in = dict(self.settings("foretoken-memory@.service.d/50-state.conf"))
        self.assertEqual("0700", drop_in["StateDirectoryMode"])
        self.assertIn(f"`memory.folder = \"/var/lib/{drop_in['StateDirectory']}/texts\"`", PAGE.read_text())

    def test_drop_ins_of_the_page_hand_over_keys(self):
        drop_ins = [text for text in re.findall(r"```ini\n(.*?)```", PAGE.read_text(), re.DOTALL) if "LoadCredential=" in text]
        self.assertEqual(2, len(drop_ins))
        handed_over = set()
        for text in drop_ins:
            credential = re.search(r"^LoadCredential=(\w+):/etc/foretoken/", text, re.MULTILINE).group(1)
            variable = re.search(rf"^Environment=(\w+)=%d/{credential}$", text, re.MULTILINE).group(1)
            handed_over.add(variable)
            role = "edge" if variable.startswith("FORETOKEN_EDGE_") else "draft"
            if role in ROLES:
                folder = self.folder / f"{unit_of(role)}.d"
                folder.mkdir(exist_ok=True)
                (folder / "90-site.conf").write_text(text)
                self.assertEqual((0, []), self.verify(instance_of(role)), text)
        self.assertEqual({"FORETOKEN_EDGE_KEY_FILE", "FORETOKEN_BUS_CURVE_SECRET"}, handed_over)

    @unittest.skipIf("edge" not in ROLES, "built without the HTTP edge")
    def test_a_drop_in_of_the_page_opens_the_edge_to_a_network(self):
        section = PAGE.read_text().split("\n## Under systemd\n")[1].split("\n## ")[0]
        [text] = [text for text in re.findall(r"```ini\n(.*?)```", section, re.DOTALL) if "IPAddressAllow=" in text]
        folder = self.folder / "foretoken-edge.service.d"
        self.assertIn("IPAddressAllow=localhost", (folder / "30-net.conf").read_text().splitlines())
        (folder / "90-site.conf").write_text(text)
        self.assertEqual((0, []), self.verify("foretoken-edge.service"))

    def test_drop_ins_of_the_page_for_other_hosts_wait_for_the_network(self):
        # An address that is not there yet fails a start, and ten failed starts within a minute are the last.
        opened = [text for text in re.findall(r"```ini\n(.*?)```", PAGE.read_text(), re.DOTALL) if "IPAddressAllow=" in text]
        self.assertEqual(2, len(opened))
        for text in opened:
            head = text.split("[Service]")[0].splitlines()
            self.assertLessEqual({"[Unit]", "Wants=network-online.target", "After=network-online.target"}, set(head), text)

    def test_every_service_promises_the_same_contract(self):
        for role in ROLES:
            text = (self.units / unit_of(role)).read_text()
            for line in ("Type=notify", "WatchdogSec=10", "Restart=on-failure", "RestartPreventExitStatus=64 78",
                         "KillMode=mixed"):
                self.assertIn(line, text, role)
            self.assertNotIn("Requires=", text.replace("never Requires=", ""), role)

    def settings(self, unit):
        """(key, value) of each line that systemd reads."""
        lines = (self.units / unit).read_text().splitlines()
        return [tuple(line.split("=", 1)) for line in lines if "=" in line and not line.startswith("#")]

    def test_stopping_all_asks_all_at_once(self):
        # The services leave by duty themselves. An order between them would be reversed on stop: workers that
        # start after the router would be stopped before it has closed its door.
        for role in ROLES:
            ordered = [value for key, value in self.settings(unit_of(role))
                       if key in ("After", "Before") and "foretoken" in value]
            self.assertEqual([], ordered, role)
            # A stop of foretoken.target reaches the service over its role's target.
            if role == "edge":  # one a host, so it has no target of its own
                self.assertIn(("PartOf", "foretoken.target"), self.settings(unit_of(role)))
                continue
            self.assertIn(("PartOf", group_of(role)), self.settings(unit_of(role)))
            self.assertIn(("PartOf", "foretoken.target"), self.settings(group_of(role)))

    def test_a_drain_fits_into_the_stop_timeout(self):
        sections = (pathlib.Path(__file__).resolve().parents[2] / "common/config/sections.h").read_text()
        drain_s = int(re.search(r"drain_s = (\d+);", sections).group(1))
        for role in ROLES:
            stop_s = int(dict(self.settings(unit_of(role)))["TimeoutStopSec"])
            self.assertGreaterEqual(stop_s, drain_s + 10, role)


class Kubernetes(unittest.TestCase):
    MANIFEST = (pathlib.Path(__file__).resolve().parents[2] / "deploy/kubernetes/foretoken.yaml").read_text()

    def test_the_runtime_folder_lies_in_the_volume_and_is_not_the_volume(self):
        # Others may write to the volume's own folder, and services refuse that.
        folder = pathlib.Path(re.search(r'runtime_dir = "(.+?)"', self.MANIFEST).group(1))
        mounts = set(re.findall(r"{name: runtime, mountPath: (.+?)}", self.MANIFEST))
        self.assertEqual({str(folder.parent)}, mounts)

    def test_variables_of_services_beside_it_are_no_settings(self):
        self.assertIn("enableServiceLinks: false", self.MANIFEST)


if __name__ == "__main__":
    unittest.main()

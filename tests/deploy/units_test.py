"""The systemd units as systemd sees them: verified without a warning, and as hard as operations says.

usage: units_test.py FOLDER_WITH_UNITS
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

UNITS = pathlib.Path(sys.argv.pop(1))
ROLES = ("router", "tokenizer", "draft", "target")
# Highest exposure that systemd-analyze security may report; lower is better, a bare unit scores 9.6. The tokenizer
# pays 0.1 for its regular-expression compiler, the router for its TCP port.
EXPOSURE = {"router": 1.2, "tokenizer": 0.5, "draft": 0.5, "target": 0.5}


class Units(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="foretoken-units-"))
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copytree(UNITS, self.folder, dirs_exist_ok=True)
        # verify wants the programs to exist, and an instance name.
        for role in ROLES:
            unit = self.folder / f"foretoken-{role}@.service"
            text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(), flags=re.M)
            (self.folder / f"foretoken-{role}@0.service").write_text(text)
            unit.write_text(text)

    def verify(self, *names):
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", *[str(self.folder / n) for n in names]],
                              capture_output=True, text=True, timeout=60)
        return done.returncode, [line for line in done.stderr.splitlines() if "foretoken" in line]

    def test_units_verify_without_a_warning(self):
        names = [f"foretoken-{role}@0.service" for role in ROLES] + ["foretoken.target"]
        self.assertEqual((0, []), self.verify(*names))

    def test_verify_would_notice(self):
        unit = self.folder / "foretoken-draft@0.service"
        unit.write_text(unit.read_text().replace("WatchdogSec=10", "WatchdogSec=often"))
        self.assertNotEqual([], self.verify(unit.name)[1])

    def test_exposure_is_within_bounds(self):
        for role, limit in EXPOSURE.items():
            done = subprocess.run(
                ["systemd-analyze", "security", "--offline=yes", "--no-pager",
                 str(self.folder / f"foretoken-{role}@0.service")], capture_output=True, text=True, timeout=60)
            match = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
            self.assertIsNotNone(match, done.stdout + done.stderr)
            self.assertLessEqual(float(match.group(1)), limit, role)

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

    def test_every_service_promises_the_same_contract(self):
        for role in ROLES:
            text = (UNITS / f"foretoken-{role}@.service").read_text()
            for line in ("Type=notify", "WatchdogSec=10", "Restart=on-failure", "RestartPreventExitStatus=64 78",
                         "KillMode=mixed"):
                self.assertIn(line, text, role)
            self.assertNotIn("Requires=", text.replace("never Requires=", ""), role)

    def settings(self, unit):
        """(key, value) of each line that systemd reads."""
        lines = (UNITS / unit).read_text().splitlines()
        return [tuple(line.split("=", 1)) for line in lines if "=" in line and not line.startswith("#")]

    def test_stopping_all_asks_all_at_once(self):
        # The services leave by duty themselves. An order between them would be reversed on stop: workers that
        # start after the router would be stopped before it has closed its door.
        for role in ROLES:
            ordered = [value for key, value in self.settings(f"foretoken-{role}@.service")
                       if key in ("After", "Before") and "foretoken" in value]
            self.assertEqual([], ordered, role)
            # A stop of foretoken.target reaches the service over its role's target.
            self.assertIn(("PartOf", f"foretoken-{role}.target"), self.settings(f"foretoken-{role}@.service"))
            self.assertIn(("PartOf", "foretoken.target"), self.settings(f"foretoken-{role}.target"))

    def test_a_drain_fits_into_the_stop_timeout(self):
        sections = (pathlib.Path(__file__).resolve().parents[2] / "common/config/sections.h").read_text()
        drain_s = int(re.search(r"drain_s = (\d+);", sections).group(1))
        for role in ROLES:
            stop_s = int(dict(self.settings(f"foretoken-{role}@.service"))["TimeoutStopSec"])
            self.assertGreaterEqual(stop_s, drain_s + 10, role)


if __name__ == "__main__":
    unittest.main()

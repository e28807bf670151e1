"""How long a model takes to load, and in how much memory: from `foretoken up` to the first token, and the target's peak. With a second
folder of programs both are measured in turn.

usage: load_time.py BIN [BIN] --model FOLDER [--dtype auto] [--runs N]
Both read the same folder, which a first run that is not counted brings into the page cache. Prints each run, then medians.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/support"))
from ports import free_port  # noqa: E402


def target_peak_mib(folder):
    """Of the target that was started with this runtime folder."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_text()
            if "foretoken-target" in command and folder in command:
                return int(re.search(r"VmHWM:\s+(\d+)", (process / "status").read_text()).group(1)) / 1024
        except OSError:  # it ended meanwhile
            continue
    sys.exit("error: no target runs")


def measure(programs, model, dtype):
    """Seconds until the first token, and the target's peak in MiB."""
    command = str(pathlib.Path(programs) / "foretoken")
    with tempfile.TemporaryDirectory(prefix="foretoken-load-") as folder:
        settings = ["--set", f"bus.client=tcp://127.0.0.1:{free_port()}", "--set", f"bus.runtime_dir={folder}"]
        begin = time.monotonic()
        subprocess.run([command, "up", "--detach", "--quiet", "--model", model, "--draft", "", "--dtype", dtype, "--ctx-size", "2048",
                        "--port", "0", "--set", "kv_cache.memory=256MiB", *settings], check=True)
        try:
            subprocess.run([command, "generate", "-n", "1", "hello", *settings], check=True, capture_output=True)
            return time.monotonic() - begin, target_peak_mib(folder)
        finally:
            subprocess.run([command, "down", "--quiet", *settings], check=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--model", required=True)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    measure(options.programs[0], options.model, options.dtype)
    read = {programs: [] for programs in options.programs}
    for _ in range(options.runs):
        for programs, figures in read.items():
            figures.append(measure(programs, options.model, options.dtype))
            print(f"{programs}: first token after {figures[-1][0]:.2f} s, peak {figures[-1][1]:.0f} MiB", flush=True)
    for programs, figures in read.items():
        seconds, mib = (statistics.median(each) for each in zip(*figures))
        print(f"median of {options.runs}, {programs}: {seconds:.2f} s, {mib:.0f} MiB")


if __name__ == "__main__":
    main()

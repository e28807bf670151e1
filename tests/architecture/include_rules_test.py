"""Arrows point down: who may include whom, and one door per outside library.

docs/architecture.md says the rules, the tables below every edge and door. A new one needs a reason, and often a word there.
"""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# room -> rooms it may include, besides itself. "kernels" from outside means kernels/include/ only.
ALLOWED = {
    "common/base": set(),
    "kernels": {"common/base"},
    "common/config": {"common/base"},
    "common/wire": {"common/base"},
    "common/transport": {"common/base"},
    "common/tokenizer": {"common/base"},
    "common/kv": {"common/base", "kernels"},
    "common/spec": {"common/base", "kernels"},
    "common/runtime": {"common/base", "common/config", "common/wire", "common/transport"},
    "common/collective": {"common/base", "kernels"},
    "common/model": {"common/base", "kernels", "common/collective"},
    "common/engine": {"common/base", "common/config", "kernels", "common/collective", "common/kv", "common/spec", "common/model"},
}
SERVICE = {"common/base", "common/config", "common/wire", "common/transport", "common/runtime"}
WORKER = SERVICE | {"common/kv", "common/spec", "common/engine", "common/model", "kernels"}
ALLOWED.update({
    "services/router": SERVICE,
    "services/chat_template": {"common/base"},
    "services/tokenizer": SERVICE | {"common/tokenizer", "services/chat_template"},
    "services/draft": WORKER,
    "services/target": WORKER,
    "services/cli": SERVICE | {"common/tokenizer", "common/model", "kernels", "bench"},
    # The handoff is timed on the bus and through the codec that services use.
    "bench": {"common/base", "kernels", "common/wire", "common/transport", "common/runtime"},
})

# library header (regular expression) -> the only files that may include it.
DOORS = {
    r"zmq(\.hpp|_addon\.hpp|\.h)": ["common/transport/*.cc"],
    r"msgpack(\.hpp|/.*)": ["common/wire/*.cc"],
    r"toml(\.hpp|11/.*)?": ["common/config/toml_reader.cc"],
    r"CLI/.*": ["common/runtime/args.cc", "services/cli/*.cc"],
    r"(spdlog|fmt)/.*": ["common/base/log.cc"],
    r"nlohmann/.*": ["common/base/json.h", "common/base/json.cc"],
    r"simdjson\.h": ["common/tokenizer/tokenizer_json.cc"],
    r"pcre2\.h": ["common/tokenizer/pre_tokenizer.cc", "common/tokenizer/regex.cc"],
    r"utf8proc\.h": ["common/tokenizer/unicode.cc"],
    r"sentencepiece_processor\.h": ["common/tokenizer/sentencepiece.cc"],
    r"prometheus/.*": ["common/runtime/metrics.cc"],
    r"systemd/.*": ["common/runtime/process.cc", "common/runtime/rank_launcher.cc"],
    r"pybind11/.*": ["services/chat_template/*.cc"],
    r"mpi\.h": ["common/collective/mpi.cc"],
    r"cuda.*": ["kernels/cuda/*", "bench/gpu/handoff.cu"],
}

# Services that serve are blind to ZeroMQ: common/runtime gives them a bus.
BLIND = {"services/router", "services/tokenizer", "services/draft", "services/target"}

INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.M)


def sources():
    for top in ("common", "kernels", "services", "bench"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in {".h", ".cc", ".cu", ".cuh"} and path.is_file():
                yield path.relative_to(ROOT)


def room_of(path):
    parts = pathlib.PurePosixPath(path).parts
    return parts[0] if parts[0] in {"kernels", "bench"} else "/".join(parts[:2])


def violations(path, text):
    """Every include of one file that the tables do not allow, as sentences."""
    found = []
    room = room_of(path)
    for match in INCLUDE.finditer(text):
        own, outside = match.groups()
        header = own or outside
        if (ROOT / header).is_file() or header.startswith(("common/", "kernels/", "services/", "bench/", "tests/")):
            other = room_of(header)
            if other == room:
                continue
            if path.name == "main.cc" and room.startswith("services/") and other in {"kernels", "common/tokenizer", "common/collective"}:
                pass  # main alone makes concrete choices
            elif other not in ALLOWED.get(room, set()):
                found.append(f"{path}: {room} may not include {header}")
            if room in BLIND and header.startswith("common/transport/zmq_"):
                found.append(f"{path}: {header} is ZeroMQ's; services are blind to it")
            # Benchmarks time inner loops, so they alone may look inside.
            if other == "kernels" and room != "bench" and not header.startswith("kernels/include/"):
                found.append(f"{path}: {header} is inside kernels; only kernels/include/ is a door")
        for library, doors in DOORS.items():
            if re.fullmatch(library, header) and not any(pathlib.PurePosixPath(path).match(door) for door in doors):
                found.append(f"{path}: {header} has its door at {', '.join(doors)}")
    return found


class IncludeRules(unittest.TestCase):
    def test_every_room_is_in_the_table(self):
        unknown = {room_of(path) for path in sources()} - set(ALLOWED)
        self.assertEqual(set(), unknown)

    def test_arrows_point_down_and_libraries_keep_to_their_doors(self):
        files = list(sources())
        self.assertGreater(len(files), 10)
        found = [line for path in files for line in violations(path, (ROOT / path).read_text(encoding="utf-8"))]
        self.assertEqual([], found)

    def test_the_rules_can_fail(self):
        upward = violations(pathlib.PurePosixPath("kernels/x.cc"), '#include "common/kv/kv_cache.h"\n')
        spread = violations(pathlib.PurePosixPath("services/router/x.cc"), "#include <zmq.hpp>\n")
        inside = violations(pathlib.PurePosixPath("common/kv/x.cc"), '#include "kernels/shared/contract.h"\n')
        seeing = violations(pathlib.PurePosixPath("services/router/x.cc"), '#include "common/transport/zmq_transport.h"\n')
        self.assertEqual([1, 1, 1, 1], [len(upward), len(spread), len(inside), len(seeing)])

    def test_headers_start_with_pragma_once(self):
        missing = [str(p) for p in sources() if p.suffix == ".h" and
                   not (ROOT / p).read_text(encoding="utf-8").lstrip().startswith(("#pragma once", "//"))]
        self.assertEqual([], missing)


if __name__ == "__main__":
    unittest.main()

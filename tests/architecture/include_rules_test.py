"""Arrows point down: which folder may include which, and one door per outside library.

docs/architecture.md says the rules, the tables below every edge and door. A new one needs a reason, and often a word there.
"""

import graphlib
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# folder -> folders its files include, besides itself. There are no cycles, and an edge that no file uses fails the test.
ALLOWED = {
    "common/base": set(),
    "common/config": {"common/base"},
    # What messages say is below the wire, so that engines take and give them; their bytes are the wire's.
    "common/messages": {"common/base"},
    "common/wire": {"common/base", "common/messages"},
    "common/transport": {"common/base"},
    "common/tokenizer": {"common/base"},
    "common/collective": {"common/base"},
    "common/runtime": {"common/base", "common/config", "common/messages", "common/wire", "common/transport"},
    # A client of the router: the command, and the edge on behalf of HTTP clients.
    "common/client": {"common/base", "common/config", "common/messages", "common/wire", "common/transport"},
    # Of the kernels, kernels/include is for all. Inside, what backends share lies below them; the CUDA kernels include the
    # emulator where they are compiled as C++.
    "kernels/include": set(),
    "kernels/shared": {"common/base", "kernels/include"},
    "kernels/ref": {"common/base", "kernels/include"},
    "kernels/cpu": {"common/base", "kernels/include", "kernels/shared"},
    "kernels/device": set(),
    "kernels/emu": {"common/base", "kernels/include", "kernels/device"},
    "kernels/cuda": {"common/base", "kernels/include", "kernels/shared", "kernels/device", "kernels/emu"},
    "kernels": {"common/base", "kernels/include", "kernels/cpu"},
    "common/kv": {"common/base", "kernels/include"},
    "common/memory": {"common/base"},
    "common/memory_log": {"common/base"},
    "common/grammar": {"common/base"},
    "common/spec": {"common/base", "common/grammar", "kernels/include"},
    "common/model": {"common/base", "kernels/include", "common/collective"},
    "common/engine": {"common/base", "kernels/include", "common/messages", "common/collective", "common/kv", "common/grammar",
                      "common/spec", "common/model"},
    # Benchmarks time inner loops, so bench alone looks inside a backend, and at a memory of texts; the handoff is timed on the bus and through the codec
    # that services use.
    "bench": {"common/base", "common/memory", "kernels/include", "kernels/cpu"},
    "bench/gpu": {"common/base", "kernels/include"},
    "bench/peers/llama": {"common/base"},
    # The services around a timed model make what the mains of draft and target and served_model make.
    "bench/schedule": {"common/base", "common/transport"},
    "bench/timed": {"common/base", "common/collective", "common/model", "common/runtime", "common/tokenizer",
                    "kernels/include", "bench/schedule", "services/served_model", "services/draft", "services/target"},
    "bench/handoff": {"common/base", "common/wire", "common/transport", "common/runtime"},
    "services/chat_template": {"common/base"},
    "services/router": {"common/base", "common/config", "common/grammar", "common/messages", "common/wire", "common/transport",
                        "common/runtime"},
    "services/tokenizer": {"common/base", "common/config", "common/messages", "common/wire", "common/runtime", "common/tokenizer"},
    "services/served_model": {"common/base", "common/config", "common/messages", "common/runtime", "common/tokenizer",
                              "common/collective", "common/kv", "common/grammar", "common/model", "common/engine",
                              "kernels/include"},
    "services/draft": {"common/base", "common/config", "common/messages", "common/wire", "common/runtime", "common/tokenizer",
                       "common/memory", "common/memory_log", "common/spec", "common/model", "common/engine", "kernels/include",
                       "services/served_model"},
    "services/target": {"common/base", "common/config", "common/messages", "common/wire", "common/transport", "common/runtime",
                        "common/spec", "common/model", "common/engine", "kernels/include", "services/served_model"},
    "services/edge": {"common/base", "common/client", "common/config", "common/messages", "common/runtime", "common/wire"},
    "services/import_triton": {"common/base", "common/config"},
    "services/cli": {"common/base", "common/client", "common/config", "common/messages", "common/wire", "common/transport",
                     "common/runtime", "common/tokenizer", "common/model", "kernels/include", "bench", "bench/schedule",
                     "services/edge"},
}
# Of the folder's main.cc alone, which makes the concrete choices.
MAIN = {
    "services/tokenizer": {"services/chat_template"},
}

# library header (regular expression) -> the only files that may include it.
DOORS = {
    r"zmq(\.hpp|_addon\.hpp|\.h)": ["common/transport/*.cc"],
    r"msgpack(\.hpp|/.*)": ["common/wire/*.cc"],
    r"toml(\.hpp|11/.*)?": ["common/config/toml_reader.cc"],
    r"CLI/.*": ["common/runtime/args.cc", "common/runtime/manual.cc", "services/cli/*.cc", "services/cli/*flag*.h"],
    r"ncursesw/.*": ["services/cli/terminal_screen.cc"],
    r"histedit\.h": ["services/cli/line_editor.cc"],
    r"(spdlog|fmt)/.*": ["common/base/log.cc"],
    r"nlohmann/.*": ["common/base/json.h", "common/base/json.cc"],
    r"simdjson\.h": ["common/tokenizer/tokenizer_json.cc"],
    r"pcre2\.h": ["common/tokenizer/pre_tokenizer.cc", "common/tokenizer/regex.cc"],
    r"utf8proc\.h": ["common/tokenizer/unicode.cc"],
    r"sentencepiece_processor\.h": ["common/tokenizer/sentencepiece.cc"],
    r"prometheus/.*": ["common/runtime/metrics.cc"],
    r"systemd/.*": ["common/runtime/process.cc", "common/runtime/rank_launcher.cc"],
    r"pybind11/.*": ["services/chat_template/*.cc"],
    r"boost/crc\.hpp": ["common/memory_log/log_format.cc"],
    r"boost/asio/.*": ["services/edge/asio.h"],
    r"boost/beast/.*": ["services/edge/http_server.cc", "services/edge/http_client.cc", "services/cli/bench_http_door.cc"],
    r"sodium\.h": ["services/edge/api_keys.cc", "services/edge/thought_signature.cc", "services/edge/web_page.cc"],
    r"google/protobuf/.*": ["services/import_triton/triton_config.cc"],
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


def folder_of(path):
    return str(pathlib.PurePosixPath(path).parent)


def includes(path, text):
    """The folder that each include of our own names, and its header."""
    for match in INCLUDE.finditer(text):
        header = match[1] or match[2]
        if (ROOT / header).is_file() or header.startswith(("common/", "kernels/", "services/", "bench/", "tests/")):
            if folder_of(header) != folder_of(path):
                yield folder_of(header), header


def is_main_only(path, folder):
    return pathlib.PurePosixPath(path).name == "main.cc" and folder in MAIN.get(folder_of(path), set())


def violations(path, text):
    """Every include of one file that the tables do not allow, as sentences."""
    found = []
    here = folder_of(path)
    for folder, header in includes(path, text):
        if folder not in ALLOWED.get(here, set()) and not is_main_only(path, folder):
            found.append(f"{path}: {here} may not include {header}")
        if here in BLIND and header.startswith("common/transport/zmq_"):
            found.append(f"{path}: {header} is ZeroMQ's; services are blind to it")
    for match in INCLUDE.finditer(text):
        header = match[1] or match[2]
        for library, doors in DOORS.items():
            if re.fullmatch(library, header) and not any(pathlib.PurePosixPath(path).match(door) for door in doors):
                found.append(f"{path}: {header} has its door at {', '.join(doors)}")
    return found


def unused(files):
    """Every edge of the tables that none of the files, given with their texts, uses."""
    allowed = {(here, folder) for table in (ALLOWED, MAIN) for here, folders in table.items() for folder in folders}
    used = {(folder_of(path), folder) for path, text in files for folder, _ in includes(path, text)}
    return sorted(f"{here} -> {folder}" for here, folder in allowed - used)


def cycle(edges):
    """Folders that include one another in a circle; empty if there are none."""
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


class IncludeRules(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.files = [(path, (ROOT / path).read_text(encoding="utf-8")) for path in sources()]

    def test_every_folder_is_in_the_table(self):
        self.assertEqual(set(ALLOWED), {folder_of(path) for path, _ in self.files})

    def test_arrows_point_down_and_libraries_keep_to_their_doors(self):
        self.assertGreater(len(self.files), 10)
        self.assertEqual([], [line for path, text in self.files for line in violations(path, text)])

    def test_every_edge_of_the_table_is_used(self):
        self.assertEqual([], unused(self.files))

    def test_folders_do_not_include_one_another_in_a_circle(self):
        self.assertEqual([], cycle({here: folders | MAIN.get(here, set()) for here, folders in ALLOWED.items()}))

    def test_the_rules_can_fail(self):
        def one(path, text):
            return len(violations(pathlib.PurePosixPath(path), text))
        self.assertEqual(1, one("kernels/x.cc", '#include "common/kv/kv_cache.h"\n'))
        self.assertEqual(1, one("services/router/x.cc", "#include <zmq.hpp>\n"))
        self.assertEqual(1, one("common/kv/x.cc", '#include "kernels/shared/contract.h"\n'))
        self.assertEqual(1, one("common/engine/x.cc", '#include "common/wire/codec.h"\n'))
        self.assertEqual(1, one("common/messages/x.h", "#include <msgpack.hpp>\n"))
        self.assertEqual(1, one("kernels/emu/x.cc", '#include "kernels/cuda/backend.h"\n'))
        self.assertEqual(1, one("services/router/x.cc", '#include "common/transport/zmq_transport.h"\n'))
        self.assertEqual(1, one("services/tokenizer/x.cc", '#include "services/chat_template/chat_template.h"\n'))
        self.assertEqual(0, one("services/tokenizer/main.cc", '#include "services/chat_template/chat_template.h"\n'))
        all_but_engine = [(path, text) for path, text in self.files if folder_of(path) != "common/engine"]
        self.assertIn("common/engine -> common/kv", unused(all_but_engine))
        self.assertTrue(cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}}))

    def test_headers_start_with_pragma_once(self):
        missing = [str(p) for p in sources() if p.suffix == ".h" and
                   not (ROOT / p).read_text(encoding="utf-8").lstrip().startswith(("#pragma once", "//"))]
        self.assertEqual([], missing)


if __name__ == "__main__":
    unittest.main()

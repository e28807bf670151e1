"""What services count: the table's metrics, all of them, as valid Prometheus text, with figures that agree with the answers."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

from harness import BIN, Client, System, request, use_demo_pair, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = re.compile(r'^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
REQUESTS, TOKENS = 12, 48


def table():
    """{name: (type, labels, is it in vLLM)} of the reference page, which another test holds to the table."""
    rows = {}
    for line in (ROOT / "docs/reference/metrics.md").read_text("utf-8").splitlines():
        if line.startswith("| `"):
            name, kind, labels, *_ = (cell.strip() for cell in line.strip("|").split("|"))
            rows[name.split("`")[1]] = (kind, set(re.findall(r"\w+", labels)), "`vllm`" in name)
    return rows


def parse(text):
    """({family: type}, [(name, labels, value)])"""
    types, samples = {}, []
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types, f"two families {name}"
            types[name] = kind
        elif line and not line.startswith("#"):
            name, labels, value = SAMPLE.match(line).groups()
            samples.append((name, dict(LABEL.findall(labels or "")), float(value)))
    return types, samples


def family_of(name, types):
    return name if name in types else re.sub(r"_(bucket|sum|count)$", "", name)


def tool(*arguments):
    return subprocess.run([os.path.join(BIN, "foretoken"), *arguments], capture_output=True, text=True, check=True).stdout


def dashboard_exprs():
    return [(panel["title"], target["expr"]) for panel in json.loads(tool("metrics", "--grafana"))["panels"]
            for target in panel.get("targets", [])]


def alert_exprs():
    return [(name, json.loads(expr)) for name, expr in
            re.findall(r"- alert: (\w+)\n +expr: (\".*\")\n", tool("metrics", "--alerts"))]


class Alerts(unittest.TestCase):
    def test_each_metric_of_the_page_has_a_rule_but_those_that_it_names(self):
        page = (ROOT / "docs/operations.md").read_text()
        metrics = set(re.findall(r"foretoken_\w+", "".join(
            line.split("|")[1] for line in page.split("Worth an alarm:\n\n")[1].split("\n\n")[0].splitlines())))
        without = set(re.findall(r"`(foretoken_\w+)`", re.search(r"`foretoken metrics --alerts`(.*?): which values", page, re.DOTALL)[1]))
        ruled = set(re.findall(r"\bforetoken_\w+?(?=_bucket\b|\b)", " ".join(expr for _, expr in alert_exprs())))
        self.assertGreater(len(metrics), 15)
        self.assertEqual(without, metrics - ruled)


class MetricsOfASystem(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        use_demo_pair()
        cls.system = System(settings=["metrics.compat=vllm", "edge.port=0"]).__enter__()
        cls.system.start("router", "tokenizer", "draft", "draft-memory", "target", "target-1", "edge")
        cls.system.wait_ready(targets=2, drafts=2)
        # The edge sends a token of its own through all services, which would be counted with the requests below.
        wait_for(cls.edge_is_healthy, "a token of the edge has gone through all services")
        client = Client(cls.system)
        # Until some guesses came in time: without load a draft has every time that it needs.
        wait_for(lambda: client.ask(**request(0, max_tokens=TOKENS))["metrics"]["speculative_decoding"]["num_spec_steps"] > 0,
                 "guesses are verified")
        # Beside other work all guesses of a few requests may come too late: again, until some were verified.
        def guesses_were_verified():
            before = cls.read(client)
            ids = [client.send(request(i, max_tokens=TOKENS, stream=True)) for i in range(REQUESTS)]
            cls.replies = [client.wait(one)[-1] for one in ids]
            cls.text = client.ask(op="metrics")["metrics_text"]
            cls.types, cls.samples = parse(cls.text)
            cls.grown = {key: value - before.get(key, 0) for key, value in cls.summed(cls.samples).items()}
            return all(cls.grown[("foretoken_spec_decode_round_seconds_count", phase)] > 0 for phase in ("propose", "transport", "verify"))
        wait_for(guesses_were_verified, "guesses are verified", 120)
        client.close()

    @classmethod
    def edge_is_healthy(cls):
        for service in cls.system.status()["services"]:
            if service["role"] == "edge":
                try:
                    return urllib.request.urlopen(service["endpoint"] + "/health", timeout=5).status == 200
                except urllib.error.HTTPError:
                    return False
        return False

    @classmethod
    def tearDownClass(cls):
        cls.system.assert_alive()
        cls.system.__exit__(None, None, None)

    @staticmethod
    def summed(samples):
        sums = {}
        for name, labels, value in samples:
            key = (name, labels.get("phase", ""))
            sums[key] = sums.get(key, 0) + value
        return sums

    @classmethod
    def read(cls, client):
        return cls.summed(parse(client.ask(op="metrics")["metrics_text"])[1])

    def of(self, name, phase=""):
        return self.grown[("foretoken_" + name, phase)]

    def test_every_metric_of_the_table_is_there_and_no_other(self):
        own = {name.removeprefix("foretoken_"): kind for name, kind in self.types.items() if name.startswith("foretoken_")}
        self.assertEqual({name: kind for name, (kind, _, _) in table().items()}, own)

    def test_samples_have_the_labels_of_the_table_and_a_service(self):
        for name, labels, _ in self.samples:
            family = family_of(name, self.types).removeprefix("foretoken_").removeprefix("vllm:")
            with self.subTest(name=name):
                self.assertIn("service", labels)
                self.assertEqual(table()[family][1], set(labels) - {"service", "model_name", "le"})
                if not labels["service"].startswith(("router", "edge")):
                    self.assertIn("model_name", labels)

    def test_what_vllm_has_is_there_under_its_name_with_the_same_values(self):
        theirs = {(n.removeprefix("vllm:"), tuple(sorted(l.items())), v) for n, l, v in self.samples if n.startswith("vllm:")}
        vllm = {"foretoken_" + name for name, (_, _, is_there) in table().items() if is_there}
        ours = {(n.removeprefix("foretoken_"), tuple(sorted(l.items())), v) for n, l, v in self.samples
                if family_of(n, self.types) in vllm}
        self.assertGreater(len(ours), 100)
        self.assertEqual(ours, theirs)

    def test_requests_are_counted_once(self):
        for name in ("time_to_first_token_seconds_count", "e2e_request_latency_seconds_count", "request_queue_time_seconds_count",
                     "request_prefill_time_seconds_count", "request_decode_time_seconds_count", "request_prompt_tokens_count",
                     "request_time_per_output_token_seconds_count", "request_success_total", "requests_total"):
            self.assertEqual(REQUESTS, self.of(name), name)
        ends = {labels["finished_reason"]: value for name, labels, value in self.samples
                if name == "foretoken_request_success_total"}
        self.assertEqual({"stop": 0, "length": REQUESTS, "cancelled": 0, "deadline": 0}, {**ends, "length": self.of("request_success_total")})

    def test_tokens_agree_with_the_answers(self):
        self.assertEqual(REQUESTS * TOKENS, self.of("request_generation_tokens_sum"))
        self.assertEqual(REQUESTS * TOKENS, self.of("generation_tokens_total"))
        self.assertEqual(sum(r["usage"]["prompt_tokens"] for r in self.replies), self.of("request_prompt_tokens_sum"))
        spec = [r["metrics"]["speculative_decoding"] for r in self.replies]
        self.assertEqual(sum(s["num_spec_steps"] for s in spec), self.of("spec_decode_num_drafts_total"))
        self.assertEqual(sum(s["num_accepted_draft_tokens"] for s in spec), self.of("spec_decode_num_accepted_tokens_total"))
        self.assertEqual(sum(s["num_draft_tokens"] for s in spec), self.of("spec_decode_num_draft_tokens_total"))
        # Of streamed answers alone: tokens of others come in batches. A request's first tokens begin no interval; what one round commits together arrives together.
        self.assertLessEqual(self.of("inter_token_latency_seconds_count"), REQUESTS * (TOKENS - 1))
        self.assertGreaterEqual(self.of("inter_token_latency_seconds_count"), REQUESTS)

    def test_parts_of_a_request_are_no_longer_than_the_whole(self):
        whole = self.of("e2e_request_latency_seconds_sum")
        first = self.of("time_to_first_token_seconds_sum")
        parts = sum(self.of(f"request_{part}_time_seconds_sum") for part in ("queue", "prefill", "decode"))
        self.assertLess(first, whole)
        self.assertLess(parts, whole)
        self.assertGreater(self.of("request_decode_time_seconds_sum"), 0)
        # Arrivals at the router follow the passes at the target.
        self.assertLess(first + self.of("inter_token_latency_seconds_sum"), whole)

    def test_every_part_of_a_round_is_timed(self):
        passes = self.of("spec_decode_round_seconds_count", "verify")
        self.assertGreater(passes, 0)
        self.assertLessEqual(passes, self.of("spec_decode_num_drafts_total"))
        self.assertEqual(passes, self.of("spec_decode_round_seconds_count", "commit"))
        self.assertGreaterEqual(self.of("spec_decode_round_seconds_count", "wait"), passes)
        for phase in ("propose", "transport", "verify", "commit"):
            self.assertGreater(self.of("spec_decode_round_seconds_count", phase), 0, phase)
            self.assertGreater(self.of("spec_decode_round_seconds_sum", phase), 0, phase)

    def test_processes_say_what_they_use(self):
        for service in ("router-0", "tokenizer-0", "draft-0", "target-0", "target-1"):
            own = {name: value for name, labels, value in self.samples if labels["service"] == service}
            self.assertGreater(own["foretoken_process_cpu_seconds_total"], 0, service)
            self.assertGreater(own["foretoken_process_resident_memory_bytes"], 1 << 20, service)
            self.assertLess(abs(own["foretoken_process_start_time_seconds"] - time.time()), 3600, service)

    def test_targets_of_one_model_are_told_apart(self):
        passes = {labels["service"] for name, labels, value in self.samples
                  if name == "foretoken_request_decode_time_seconds_count" and value > 0}
        self.assertEqual({"target-0", "target-1"}, passes)
        keys = [(name, tuple(sorted(labels.items()))) for name, labels, _ in self.samples]
        self.assertEqual(len(set(keys)), len(keys), "each sample once")

    def test_buckets_only_grow_up_to_the_count(self):
        series = {}
        for name, labels, value in self.samples:
            if name.endswith("_bucket"):
                key = (name, tuple(sorted((k, v) for k, v in labels.items() if k != "le")))
                series.setdefault(key, []).append((float(labels["le"]), value))
        self.assertGreater(len(series), 10)
        for key, buckets in series.items():
            values = [value for _, value in sorted(buckets)]
            self.assertEqual(sorted(values), values, key)
            self.assertEqual(float("inf"), max(le for le, _ in buckets), key)

    def test_blocks_add_up_to_those_there_are(self):
        for service in ("target-0", "target-1"):
            own = [(name, labels, value) for name, labels, value in self.samples if labels["service"] == service]
            blocks = {labels["state"]: value for name, labels, value in own if name == "foretoken_kv_cache_blocks"}
            info = next(labels for name, labels, _ in own if name == "foretoken_cache_config_info")
            self.assertEqual({"free", "used", "cached"}, set(blocks))
            self.assertEqual(int(info["num_gpu_blocks"]), sum(blocks.values()))

    def test_rounds_by_draft_length_are_the_rounds(self):
        for reply in self.replies:
            spec = reply["metrics"]["speculative_decoding"]
            sums = [0] * len(spec["acceptance_histogram"])
            drafted = 0
            for length, rounds in spec["acceptance_histogram_by_draft_length"].items():
                self.assertEqual(int(length) + 1, len(rounds))
                drafted += int(length) * sum(rounds)
                for accepted, n in enumerate(rounds):
                    sums[accepted] += n
            self.assertEqual(spec["acceptance_histogram"], sums)
            self.assertEqual(spec["num_draft_tokens"], drafted)

    def test_dashboard_and_alerts_name_metrics_that_are_there(self):
        exprs = dashboard_exprs() + alert_exprs()
        self.assertGreater(len(exprs), 50)
        named = set()
        for title, expr in exprs:
            found = {family_of(name, self.types) for name in re.findall(r"\bforetoken_\w+", expr)}
            self.assertNotEqual(set(), found, title)
            self.assertLessEqual(found, set(self.types), title)
            named |= found
        self.assertEqual({name for name in self.types if name.startswith("foretoken_")}, named, "each has a panel")

    def test_promtool_finds_nothing(self):
        promtool = shutil.which("promtool")
        if promtool is None:
            self.skipTest("no promtool (package prometheus)")
        # promtool reports colons in names, and those of vLLM have one.
        own = "".join(line + "\n" for line in self.text.splitlines() if "vllm:" not in line)
        checked = subprocess.run([promtool, "check", "metrics"], input=own, capture_output=True, text=True)
        self.assertEqual((0, "", ""), (checked.returncode, checked.stdout, checked.stderr))
        # The expressions of the dashboard as rules, so that promtool parses them as Prometheus would.
        rules = tool("metrics", "--alerts") + "  - name: dashboard\n    rules:\n" + "".join(
            "      - record: panel\n        expr: " + json.dumps(expr.replace("$__rate_interval", "5m").replace("$model", ".*")) +
            f"\n        labels: {{n: \"{i}\"}}\n" for i, (_, expr) in enumerate(dashboard_exprs()))
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            file.write(rules)
            file.flush()
            checked = subprocess.run([promtool, "check", "rules", file.name], capture_output=True, text=True)
        self.assertEqual(0, checked.returncode, checked.stdout + checked.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)

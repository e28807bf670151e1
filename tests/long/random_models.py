#!/usr/bin/env python3
"""Model folders drawn from a seed, read by Transformers and by us: logits of every position and greedy ids in float32.

  random_models.py --probes build/release/tests [--seed S] [--n PER_FAMILY] [--family NAME] [--only NUMBER]

Each folder has a config.json in one of the spellings that are in use, random weights, and unusual sizes.
Both read the same files. Logits must agree within 1e-4 and greedy ids must be equal; where the reference's two best logits
are closer than that, either is right and the comparison of that sequence ends there. Where logits differ by more, float64 with
exact angles of the rotary embedding decides: the reference takes these angles in float32, which is worth more than 1e-4 at some late
positions. What is within 1e-4 of float64, and nearer to it than the reference is, is counted as the reference's rounding. Some folders more have what we do not
compute: they must be refused with a sentence that names the field. Needs the packages of requirements.txt; no network.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy
import safetensors.torch
import torch
import transformers

TOLERANCE = 1e-4
FAMILIES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "mistral": "MistralForCausalLM"}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def draw_rope(rng, max_positions):
    """rope_scaling or rope_parameters without theta, and the positions that it makes of max_positions."""
    kind = rng.choice(["default", "default", "linear", "llama3", "yarn", "yarn"])
    if kind == "default":
        return {"rope_type": "default"}, max_positions
    factor = rng.choice([1.0, 1.5, 2.0, 4.0, 8.0, round(rng.uniform(1, 40), 3)])
    rope = {"rope_type": kind, "factor": factor}
    if kind == "linear":
        return rope, int(max_positions * factor)
    original = rng.choice([16, 64, 100, 512, max_positions])
    if kind == "llama3":
        low = rng.choice([1.0, 0.5, 2.0])
        rope.update(low_freq_factor=low, high_freq_factor=low * rng.choice([1.5, 4.0, 10.0]),
                    original_max_position_embeddings=original)
        return rope, max_positions
    if rng.random() < 0.7:
        rope["original_max_position_embeddings"] = original
    else:
        original = max_positions
    if rng.random() < 0.4:
        rope.update(beta_fast=float(rng.choice([16, 32, 64])), beta_slow=float(rng.choice([1, 2, 4])))
    choice = rng.random()
    if choice < 0.25:
        rope["attention_factor"] = round(rng.uniform(0.5, 1.5), 3)
    elif choice < 0.5:
        rope.update(mscale=round(rng.uniform(0.5, 1.5), 3), mscale_all_dim=round(rng.uniform(0.5, 1.5), 3))
    if rng.random() < 0.3:
        rope["truncate"] = False
    return rope, max(max_positions, int(original * factor))


def spell_rope(rng, config, rope, theta):
    """Puts RoPE into a config as files of one generation or another do."""
    if rng.random() < 0.5:  # Transformers 5
        config["rope_parameters"] = {**rope, "rope_theta": theta}
        return
    if theta != 10000.0 or rng.random() < 0.5:
        config["rope_theta"] = theta
    if rope == {"rope_type": "default"}:
        if rng.random() < 0.5:
            config["rope_scaling"] = None
        return
    rope = dict(rope)
    if rng.random() < 0.5:
        rope["type"] = rope.pop("rope_type")
    config["rope_scaling"] = rope


def draw_window(rng, family, config):
    """The window in force, or None."""
    layers = config["num_hidden_layers"]
    window = rng.choice([16, 33, 100, 300])
    if family == "mistral":
        choice = rng.random()
        if choice < 0.4:
            config["sliding_window"] = None
            return None
        if choice < 0.6:
            return 4096  # by the absence of the key
        config["sliding_window"] = window
        return window
    if family in ("qwen2", "qwen3"):
        choice = rng.random()
        if choice < 0.3:
            return None
        config["sliding_window"] = rng.choice([None, window])
        config["use_sliding_window"] = choice < 0.6
        if rng.random() < 0.5:
            config["max_window_layers"] = rng.randint(0, layers + 1)
        first = config.get("max_window_layers", 28)
        slides = config["use_sliding_window"] and config["sliding_window"] is not None
        if slides and rng.random() < 0.4:
            types = [rng.choice(["full_attention", "sliding_attention"]) for _ in range(layers)]
            config["layer_types"] = types
            return window if "sliding_attention" in types else None
        return window if slides and first < layers else None
    if rng.random() < 0.3:  # Llama has no window
        config["sliding_window"] = window
    return None


def draw_config(rng, family):
    """A config and what follows from it: positions that can be served, and how head and embedding are stored."""
    heads = rng.choice([1, 2, 3, 4, 5, 6, 8, 12])
    kv_heads = rng.choice([k for k in range(1, heads + 1) if heads % k == 0])
    head_dim = rng.choice([2, 4, 6, 8, 10, 16, 18, 24, 32, 34, 48, 64, 80, 96, 128, 256])
    apart = family == "qwen3" or rng.random() < 0.4
    # The reference's Llama wants a multiple of the heads even where head_dim is given.
    hidden = heads * head_dim
    if apart:
        hidden = heads * rng.randint(1, 40) if family == "llama" else rng.randint(3, 320)
    max_positions = rng.choice([128, 200, 512, 2048, 8192])
    config = {
        "architectures": [FAMILIES[family]], "model_type": family, "hidden_act": "silu",
        "num_hidden_layers": rng.randint(1, 4), "hidden_size": hidden, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "intermediate_size": rng.choice([1, 7, 32, 65, 160, 333, rng.randint(2, 500)]),
        "vocab_size": rng.choice([17, 64, 101, 256, 1000, rng.randint(20, 3000)]),
        "rms_norm_eps": rng.choice([1e-5, 1e-6, 1e-8, 1e-3]), "max_position_embeddings": max_positions,
    }
    if family == "llama" and kv_heads == heads and rng.random() < 0.5:
        del config["num_key_value_heads"]
    if apart and not (family == "qwen3" and head_dim == 128 and rng.random() < 0.5):
        config["head_dim"] = head_dim
    if rng.random() < 0.1:
        del config["rms_norm_eps"]  # 1e-6
    rope, positions = draw_rope(rng, max_positions)
    spell_rope(rng, config, rope, rng.choice([10000.0, 500000.0, 1000000.0, 100.0, 12345.678]))
    window = draw_window(rng, family, config)
    if family in ("llama", "qwen3"):
        config["attention_bias"] = rng.random() < 0.4
    if family == "llama":
        config["mlp_bias"] = rng.random() < 0.4
    dtype = rng.choice(list(DTYPES))
    config[rng.choice(["dtype", "torch_dtype"])] = dtype
    head = rng.choice(["own", "own", "tied", "tied", "repeated", "own beside tied"])
    if head != "own" or rng.random() < 0.5:
        config["tie_word_embeddings"] = head != "own"
    return config, {"positions": min(positions, window or positions), "head": head, "head_dim": head_dim, "dtype": DTYPES[dtype]}


def draw_weights(seed, config, facts):
    generator = torch.Generator().manual_seed(seed)
    hidden, ffn, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads, head_dim = config["num_attention_heads"], facts["head_dim"]
    q, kv = heads * head_dim, config.get("num_key_value_heads", heads) * head_dim
    family = config["model_type"]
    tensors = {}

    def normal(name, shape, mean=0.0, deviation=1.0):
        tensors[name] = (mean + deviation * torch.randn(shape, generator=generator)).to(facts["dtype"])

    def linear(name, n_out, n_in, bias=False):
        normal(name + ".weight", (n_out, n_in), deviation=n_in**-0.5)
        if bias:
            normal(name + ".bias", (n_out,), deviation=0.3)

    # A tied embedding is the head, too: logits are to be of the size of one.
    is_head = facts["head"] in ("tied", "repeated")
    normal("model.embed_tokens.weight", (vocab, hidden), deviation=hidden**-0.5 if is_head else 0.5)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        qkv_bias = family == "qwen2" or config.get("attention_bias", False)
        normal(at + "input_layernorm.weight", (hidden,), 1.0, 0.2)
        linear(at + "self_attn.q_proj", q, hidden, qkv_bias)
        linear(at + "self_attn.k_proj", kv, hidden, qkv_bias)
        linear(at + "self_attn.v_proj", kv, hidden, qkv_bias)
        linear(at + "self_attn.o_proj", hidden, q, config.get("attention_bias", False))
        if family == "qwen3":
            normal(at + "self_attn.q_norm.weight", (head_dim,), 1.0, 0.2)
            normal(at + "self_attn.k_norm.weight", (head_dim,), 1.0, 0.2)
        normal(at + "post_attention_layernorm.weight", (hidden,), 1.0, 0.2)
        linear(at + "mlp.gate_proj", ffn, hidden, config.get("mlp_bias", False))
        linear(at + "mlp.up_proj", ffn, hidden, config.get("mlp_bias", False))
        linear(at + "mlp.down_proj", hidden, ffn, config.get("mlp_bias", False))
    normal("model.norm.weight", (hidden,), 1.0, 0.2)
    if facts["head"] in ("own", "own beside tied"):
        normal("lm_head.weight", (vocab, hidden), deviation=hidden**-0.5)
    elif facts["head"] == "repeated":
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    return tensors


def write_folder(folder, rng, config, tensors):
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    if rng.random() < 0.7:
        safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = sorted(tensors)
    rng.shuffle(names)
    cut = rng.randint(1, len(names) - 1)
    weight_map = {}
    for i, part in enumerate((names[:cut], names[cut:]), 1):
        file = f"model-{i:05}-of-00002.safetensors"
        safetensors.torch.save_file({name: tensors[name] for name in part}, folder / file, metadata={"format": "pt"})
        weight_map.update({name: file for name in part})
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}))


def draw_questions(rng, config, facts):
    questions = []
    for _ in range(rng.randint(1, 3)):
        greedy = min(rng.randint(1, 12), facts["positions"] - 1)
        most = min(facts["positions"] - greedy, rng.choice([5, 40, 150, 400]))
        prompt = [rng.randrange(config["vocab_size"]) for _ in range(rng.randint(1, max(1, most)))]
        questions.append({"prompt": prompt, "chunk": rng.choice([1, 3, 16, 64, 500]), "greedy": greedy})
    return questions


@torch.no_grad()
def reference_answers(folder, questions):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    answers = []
    for question in questions:
        ids = list(question["prompt"])
        logits = model(torch.tensor([ids])).logits[0].numpy()
        last, greedy, gaps = logits[-1], [], []
        for _ in range(question["greedy"]):
            best = numpy.sort(last)[-2:]
            gaps.append(float(best[1] - best[0]))
            greedy.append(int(last.argmax()))
            ids.append(greedy[-1])
            if len(greedy) < question["greedy"]:
                last = model(torch.tensor([ids])).logits[0, -1].numpy()
        answers.append((logits, greedy, gaps))
    return answers


class ExactRotary(torch.nn.Module):
    def __init__(self, head_dim, theta):
        super().__init__()
        self.frequencies = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)

    def forward(self, _, position_ids, *_args, **_more):
        angles = position_ids[:, :, None].double() * self.frequencies
        both = torch.cat((angles, angles), dim=-1)
        return both.cos(), both.sin()


@torch.no_grad()
def exact_logits(folder, prompt):
    """In float64; None where the angles are scaled, which is not written twice here."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    rope = model.config.rope_parameters
    if rope["rope_type"] != "default":
        return None
    heads = model.config.num_attention_heads
    head_dim = getattr(model.config, "head_dim", None) or model.config.hidden_size // heads
    model.model.rotary_emb = ExactRotary(head_dim, rope["rope_theta"])
    return model(torch.tensor([prompt])).logits[0].numpy()


def is_rounding_of_reference(folder, prompt, ours, reference):
    exact = exact_logits(folder, prompt)
    if exact is None:
        return False
    our_error, their_error = numpy.abs(ours - exact).max(), numpy.abs(reference - exact).max()
    print(f"  from float64: ours {our_error:.3g}, the reference {their_error:.3g}")
    return our_error <= TOLERANCE and our_error < their_error


def our_answers(probe, folder, questions, vocab):
    (folder / "questions.json").write_text(json.dumps(questions))
    done = subprocess.run([probe, folder, folder / "questions.json", folder / "answers"], capture_output=True, text=True)
    if done.returncode != 0:
        return None, (done.stdout + done.stderr).strip()
    data = (folder / "answers").read_bytes()
    answers, at = [], 0
    for question in questions:
        n = len(question["prompt"]) * vocab
        logits = numpy.frombuffer(data, "<f4", n, at).reshape(-1, vocab)
        at += 4 * n
        answers.append((logits, numpy.frombuffer(data, "<i4", question["greedy"], at).tolist()))
        at += 4 * question["greedy"]
    assert at == len(data)
    return answers, int(done.stdout)


class Count:
    def __init__(self):
        self.configs = self.positions = self.logits = self.ids = self.ties = self.refused = self.rounded = 0
        self.largest = 0.0
        self.faults = []


def compare(name, folder, config, questions, ours, reference, count):
    for question, (logits, greedy), (expected, ids, gaps) in zip(questions, ours, reference):
        error = float(numpy.abs(logits.astype(numpy.float64) - expected).max())
        count.largest = max(count.largest, error)
        count.positions += len(expected)
        count.logits += expected.size
        if error > TOLERANCE and is_rounding_of_reference(folder, question["prompt"], logits, expected):
            count.rounded += 1
        elif not error <= TOLERANCE:
            count.faults.append(f"{name}: logits are off by {error:.3g}: {json.dumps(config)}")
        for i, (one, other, gap) in enumerate(zip(greedy, ids, gaps)):
            if gap <= TOLERANCE:
                count.ties += 1
                break
            count.ids += 1
            if one != other:
                count.faults.append(f"{name}: greedy id {i} is {one}, the reference's {other}: {json.dumps(config)}")
                break


def one_config(arguments, family, number, count):
    name = f"{family} {number}"
    rng = random.Random(f"model {arguments.seed} {family} {number}")
    config, facts = draw_config(rng, family)
    questions = draw_questions(rng, config, facts)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write_folder(folder, rng, config, draw_weights(rng.randrange(2**31), config, facts))
        ours, what = our_answers(arguments.probes / "model_probe", folder, questions, config["vocab_size"])
        if ours is None:
            count.faults.append(f"{name}: refused: {what}: {json.dumps(config)}")
            return
        if what != facts["positions"]:
            count.faults.append(f"{name}: {what} positions are served, {facts['positions']} expected: {json.dumps(config)}")
        compare(name, folder, config, questions, ours, reference_answers(folder, questions), count)
    count.configs += 1


UNSUPPORTED = [  # what is added to a config, and what the refusal must name
    ({"head_dim": 33}, "head_dim is 33"), ({"head_dim": 514}, "head_dim is 514"),
    ({"rope_scaling": {"rope_type": "longrope", "long_factor": [1.0], "short_factor": [1.0]}}, 'rope_type is "longrope"'),
    ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 'type is "dynamic"'),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"), ({"hidden_act": "gelu"}, "hidden_act"),
    ({"num_local_experts": 4}, "num_local_experts"), ({"hidden_size": 63, "num_attention_heads": 9}, "heads of 7"),
]


def one_refusal(arguments, family, number, count):
    rng = random.Random(f"refused {arguments.seed} {family} {number}")
    config, facts = draw_config(rng, family)
    config.pop("rope_parameters", None)
    change, named = UNSUPPORTED[number]
    if "hidden_size" in change:
        if family == "qwen3":
            return  # its heads have 128 unless the file says otherwise
        config.pop("head_dim", None)
        config["num_key_value_heads"] = 3
    config.update(change)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write_folder(folder, rng, config, draw_weights(1, {**config, "hidden_size": 8}, {**facts, "head_dim": 2}))
        ours, what = our_answers(arguments.probes / "model_probe", folder, draw_questions(rng, config, facts), 1)
    if ours is not None or named not in what:
        count.faults.append(f"{family}: {change} should be refused naming {named!r}: {what}")
    count.refused += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probes", type=pathlib.Path, required=True, help="the folder of model_probe")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--n", type=int, default=60, help="configurations of each family")
    parser.add_argument("--family", choices=list(FAMILIES))
    parser.add_argument("--only", type=int, help="this configuration alone")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    print(f"seed {arguments.seed}, transformers {transformers.__version__}, torch {torch.__version__}")
    n_faults = 0
    for family in FAMILIES if arguments.family is None else [arguments.family]:
        count = Count()
        for number in range(arguments.n) if arguments.only is None else [arguments.only]:
            one_config(arguments, family, number, count)
        for number in range(len(UNSUPPORTED)) if arguments.only is None else []:
            one_refusal(arguments, family, number, count)
        n_faults += len(count.faults)
        for fault in count.faults:
            print("DIFFERENT " + fault)
        print(f"{family}: {count.configs} configurations, {count.positions} positions, {count.logits} logits, largest difference "
              f"{count.largest:.3g}, {count.ids} greedy ids equal, {count.ties} near-ties, {count.rounded} more than 1e-4 by the "
              f"reference's rounding, {count.refused} refused as they should be, {len(count.faults)} differences", flush=True)
    return 1 if n_faults else 0


if __name__ == "__main__":
    sys.exit(main())

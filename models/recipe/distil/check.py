"""How often the draft is right: Foretoken itself serves the target with it and counts, on prompts that were held out.

Each prompt is answered at every temperature with DRAFT_LEN guesses a round, at a fixed length, and once plainly: the texts must be
the same, token for token.
"""
import json

from distil import answers as answer_files
from distil.folder import FAILED, Refused, say, write_json, write_text
from distil.system import System, own_settings

TEMPERATURES, DRAFT_LEN, SEED = (0.0, 0.7, 1.0), 4, 424242
MOST_PROMPTS, MOST_TOKENS, CONCURRENCY = 24, 128, 4
PATIENCE_MS = 1000  # what is counted is whether guesses are right, not whether they come in time


def requests_of(prompts, temperature, spec, max_tokens):
    how = {"temperature": temperature, "seed": SEED, "max_tokens": max_tokens, "fit_max_tokens": True, "num_draft_tokens": DRAFT_LEN if spec else 0,
           "proposer": "draft" if spec else "none", "adaptive": False}
    return "".join(json.dumps({**prompt, **how, "seed": SEED + i}) + "\n" for i, prompt in enumerate(prompts))


def answers_of(work, name, requests, system):
    path, answers = work.requests / f"check-{name}.jsonl", work.requests / f"check-{name}.answers.jsonl"
    write_text(path, requests)
    answers.unlink(missing_ok=True)
    system.ask(path, answers, CONCURRENCY, "--metrics")
    lines = list(answer_files.lines_of(answers))
    failed = next((line["error"]["message"] for line in lines if "error" in line and not is_too_long(line)), None)
    if failed:
        raise Refused(f"check: a request failed: {failed}", FAILED)
    path.unlink()
    answers.unlink()
    return lines


def is_too_long(line):
    return line.get("error", {}).get("code") == "context_length_exceeded"


def fitting(prompts, ask):
    """At most MOST_PROMPTS of the prompts, and how many were left out before them because the model's context is too short for them.
    ask(some prompts): a line for each."""
    chosen, n_too_long, at = [], 0, 0
    while at < len(prompts) and len(chosen) < MOST_PROMPTS:
        some = prompts[at:at + MOST_PROMPTS - len(chosen)]
        at += len(some)
        fit = [prompt for prompt, line in zip(some, ask(some)) if not is_too_long(line)]
        n_too_long += len(some) - len(fit)
        chosen += fit
    return chosen, n_too_long


def figures(spec, plain):
    """Of answers to the same requests with guesses and without."""
    said = [line["metrics"]["speculative_decoding"] for line in spec]
    rounds = sum(s["num_spec_steps"] for s in said)
    by_count = [sum(s["acceptance_histogram"][n] for s in said if n < len(s["acceptance_histogram"])) for n in range(DRAFT_LEN + 1)]
    # Of the guesses that follow right ones only, each is right or wrong: what one guess is worth.
    right = sum(n * times for n, times in enumerate(by_count))
    wrong = sum(times for n, times in enumerate(by_count) if n < DRAFT_LEN)
    return {"tokens": sum(len(line["token_ids"]) for line in spec), "rounds": rounds, "first_guess_right": round(1 - by_count[0] / max(1, rounds), 4),
            "acceptance": round(right / max(1, right + wrong), 4), "tokens_per_round": round(1 + right / max(1, rounds), 3),
            "same_texts": sum(a["token_ids"] == b["token_ids"] for a, b in zip(spec, plain)), "texts": len(spec)}


def holds(found, step):
    """Whether it need not be done again. Where texts differed the fault may have been corrected since."""
    return found["step"] == step and "too_long" in found and all(row["same_texts"] == row["texts"] for row in found["temperatures"].values())


def check(work, plan, prompts, args, step):
    kept = work.root / "check.json"
    if kept.exists() and holds(found := json.loads(kept.read_text()), step):
        return found
    n_tokens = min(MOST_TOKENS, plan["answer_tokens"])
    with System(args.program, args.target, [*own_settings(args), f"model.dtype={args.dtype}", f"model.max_model_len={plan['context']}", "speculation.adaptive=false",
                                            f"speculation.draft_deadline_ms={PATIENCE_MS}"], draft=work.out) as system:
        prompts, n_too_long = fitting(prompts, lambda some: answers_of(work, "length", requests_of(some, 0.0, False, 1), system))
        if n_too_long:
            say(f"check: {n_too_long} of {len(prompts) + n_too_long} held-out prompts do not fit into the {plan['context']} tokens of --context and are left out")
        result = {"step": step, "draft_len": DRAFT_LEN, "prompts": len(prompts), "too_long": n_too_long, "temperatures": {}}
        for temperature in TEMPERATURES if prompts else ():
            both = [answers_of(work, f"{temperature}-{spec}", requests_of(prompts, temperature, spec, n_tokens), system) for spec in (True, False)]
            result["temperatures"][str(temperature)] = row = figures(*both)
            say(f"check: temperature {temperature}: {100 * row['acceptance']:.1f} % of guesses right, {row['tokens_per_round']:.2f} tokens a round, "
                f"{row['same_texts']} of {row['texts']} texts as without a draft")
    write_json(kept, result)
    return result

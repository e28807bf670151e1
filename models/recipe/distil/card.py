"""The model card: what the draft is, from what it was made, figures, limits; and the picture of its loss."""
from distil import loss_log
from distil.folder import say, write_text


def draw(work):
    """loss.svg, where matplotlib is installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "distil"
    import matplotlib.pyplot as plt

    rows = loss_log.read(work.training / "loss.csv")
    window = max(1, len(rows) // 100)
    smooth = [(rows[i][1] / 1e6, sum(row[2] for row in rows[max(0, i - window + 1):i + 1]) / min(window, i + 1)) for i in range(len(rows))]
    figure, axes = plt.subplots(figsize=(7, 3.5))
    axes.plot(*zip(*smooth))
    axes.set(xlabel="million tokens of answers", ylabel=f"nats per token, mean of {window} steps")
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(work.out / "loss.svg", metadata={"Date": None})
    return True


def row_of(temperature, f):
    return (f"| {temperature} | {100 * f['acceptance']:.1f} % | {100 * f['first_guess_right']:.1f} % | {f['tokens_per_round']:.2f} | "
            f"{f['tokens']} | {f['same_texts']} of {f['texts']} |")


def figures_of(checked, plan):
    if not checked["prompts"]:
        return [f"None: of {checked['too_long']} held-out prompts none fits into {plan['context']} tokens.", ""]
    left_out = f" ({checked['too_long']} more do not fit into {plan['context']} tokens)" if checked["too_long"] else ""
    return [f"On {checked['prompts']} held-out prompts of the same kind{left_out}, {checked['draft_len']} guesses a round:", "",
            "| temperature | guesses right | first guess of a round | tokens per round | tokens | texts as without a draft |", "|---|---|---|---|---|---|",
            *[row_of(t, f) for t, f in checked["temperatures"].items()], "", "*Guesses right*: of those whose predecessors in the round were right.", ""]


def write(work, plan, target, found):
    counted, trained, checked = found["counted"], found["trained"], found["checked"]
    drawn, hidden_layers = draw(work), plan["shape"].replace("x", " wide, ")
    prompts = "prompts of the operator's file" if plan["prompts"] else "the token that begins a text, without prompts"
    lost = f"; {n_lost} more requests brought no answer" if (n_lost := counted["requests"] - counted["answers"]) else ""
    lines = [f"# A draft for {target['name']}", "",
             f"Made by `foretoken draft distil` for speculative decoding beside {target['name']} ({target['architecture']}, {target['vocab_size']} ids). "
             "It is of use for nothing else: it guesses what that model says next, and the text is the target's with it or without it.", "",
             "| | |", "|---|---|", f"| shape | {hidden_layers} layers, Llama, bfloat16 |",
             f"| head | {counted['head_ids']} of {target['vocab_size']} ids (`draft_ids.i32`), {100 * counted['head_mass']:.2f} % of the target's probability in the collected text |",
             f"| text | {counted['answer_tokens']} tokens in {counted['answers']} answers of the target to {prompts}, temperatures {', '.join(map(str, plan['temperatures']))}{lost} |",
             f"| learnt from | the target's {plan['top']} likeliest tokens at each position |" if plan["top"] else "| learnt from | the tokens that the target wrote |",
             f"| training | {trained['tokens']} tokens of answers in {trained['step']} steps, {trained['seconds'] / 60:.0f} min, at the end {trained['loss']:.3f} nats a token |",
             f"| cost | a step reads {100 * found['cost']:.1f} % of the weights that a target's step reads |", "", "## Figures", "",
             *figures_of(checked, plan), *(["![loss](loss.svg)", ""] if drawn else []), "## Limits", "",
             "- It was trained on one kind of text. On other text it is right less often; nothing else happens.",
             f"- Training had rows of at most {plan['length']} tokens, and of {counted['cut_prompts']} prompts that are longer with their answers it read the last ones; up to {plan['context']} it is served, by extrapolation.",
             "- Ids that are not in its head are never guessed. Other programs expect a head for all ids, and cannot load it.", ""]
    write_text(work.out / "README.md", "\n".join(lines))
    say(f"model card: {work.out / 'README.md'}" + ("" if drawn else "; without loss.svg, as matplotlib is not installed"))

#!/usr/bin/python3
"""What can answers to one prompt that are written side by side gain from each other? The texts of scene `siblings` of memory_gain.py are
written once by a system of services, then looked up again as a target and a memory of texts would: without delay, at most eight tokens a
pass, as many as are worth their price by what each length of match and each share have brought so far. Printed are tokens per pass:

  own         the prompt and the choice's own text (`ngram`)
  beside      also what the other choices had when the pass began (`ngram` + `memory`)
  a pass late the same, if what a pass wrote is found by the second pass after it
  same pass   also what the choices before this one draw in the same pass: no system can do that, as these tokens are drawn together
  best place  the place of one last token or more that has most right, at no price: no rule that chooses among them does better

usage: siblings_replay.py BIN_DIR [--texts FILE] [--requests N] [--tokens N] [--model FOLDER] [--set KEY=VALUE ...]

--texts keeps the texts in FILE, or takes them from there if it exists. Needs Debian's python3 with zmq and msgpack.
"""
import argparse
import collections
import json
import pathlib

from memory_gain import N_CHOICES, Bench, asking, demo_prompts, spread
from one_system import started

MOST_GUESSED = 8
LONGEST_MATCH = 32
ROW_COST = 0.1  # of a pass, for each token that is verified: a figure for the replay, not a measurement
PRIOR_WEIGHT = 4  # outcomes that the first figure of a class is worth
OWN_ORDERS, OWN_PLACES = (1, 2, 3), 64  # chains of prompt lookup and of a memory, and places looked at
MEMORY_ORDERS, MEMORY_PLACES = (2, 4, 8), 16


class Text:
    """A text that grows, and where its last one, two ... tokens were."""

    def __init__(self, tokens=()):
        self.tokens, self.ends = [], collections.defaultdict(list)
        self.add(tokens)

    def add(self, tokens):
        for token in tokens:
            self.tokens.append(token)
            for order in {*OWN_ORDERS, *MEMORY_ORDERS}:
                if len(self.tokens) >= order:
                    self.ends[tuple(self.tokens[-order:])].append(len(self.tokens))

    def match(self, end, last):
        most = min(LONGEST_MATCH, end, len(last))
        return next((n for n in range(most) if self.tokens[end - 1 - n] != last[-1 - n]), most)


def places(texts, last, orders, most):
    """The length of the longest match, and (text, end) of those that have it."""
    for order in reversed(orders):
        key = tuple(last[-order:])
        found = [(text.match(end, last), text, end) for text in texts for end in text.ends.get(key, [])[-most:]
                 if end < len(text.tokens)] if len(key) == order else []
        if found:
            longest = max(length for length, _, _ in found)
            return longest, [(text, end) for length, text, end in found if length == longest][:most]
    return 0, []


def walk(length, at, repeats):
    """[(token, share)] that most of the places go on with; past the end of a text it repeats what was walked."""
    walked, n_all = [], len(at)
    while len(walked) < min(MOST_GUESSED, 2 * length):
        following = []
        for text, end in at:
            i = end + len(walked)
            past = i - len(text.tokens)
            following.append(text.tokens[i] if past < 0 else walked[past][0] if repeats and past < len(walked) else None)
        counted = collections.Counter(token for token in following if token is not None).most_common(1)
        if not counted or counted[0][1] < 0.1 * n_all:
            break
        walked.append((counted[0][0], counted[0][1] / len(at)))
        at = [place for place, token in zip(at, following) if token == counted[0][0]]
    return walked


class Outcomes:
    """How often what a source said stood, by match, share and depth; begins with the product's own figure."""

    def __init__(self):
        self.counts = collections.Counter()

    def of(self, source, length, share, depth):
        return source, min(length, 8) if length in (1, 2, 3) or length >= 8 else 4, int(4 * share), min(depth, 3)

    def odds(self, *of):
        _, length, share, depth = of
        prior = share * min(0.94, (length + depth) / (length + depth + 1.5))
        key = self.of(*of)
        return (self.counts[key, True] + PRIOR_WEIGHT * prior) / (self.counts[key, True] + self.counts[key, False] + PRIOR_WEIGHT)

    def choose(self, guesses):
        """The tokens that are worth most for what they cost."""
        best, most = [], 1.0
        for source, (length, walked) in guesses.items():
            expected = stands = 1.0
            for depth, (_, share) in enumerate(walked):
                stands *= self.odds(source, length, share, depth)
                expected += stands
                if expected / (1 + ROW_COST * (depth + 1)) > most:
                    most, best = expected / (1 + ROW_COST * (depth + 1)), [token for token, _ in walked[:depth + 1]]
        return best

    def note(self, guesses, came):
        for source, (length, walked) in guesses.items():
            for depth, ((token, share), right) in enumerate(zip(walked, came)):
                self.counts[self.of(source, length, share, depth), token == right] += 1
                if token != right:
                    break


def n_right(guess, rest):
    return next((n for n, (token, right) in enumerate(zip(guess, rest)) if token != right), min(len(guess), len(rest)))


def most_right(texts, last, rest):
    return max((n_right(text.tokens[end:end + MOST_GUESSED], rest) for text in texts for end in text.ends.get(tuple(last[-1:]), [])), default=0)


def replay(groups, beside=True, late=0, same_pass=False, best_place=False):
    outcomes, n_tokens, n_passes = Outcomes(), 0, 0
    for group in groups:
        answers = group["answers"]
        own = [Text(group["prompt"]) for _ in answers]
        known = [Text(group["prompt"]) for _ in answers]  # by a memory
        waiting = [[] for _ in answers]
        done = [0] * len(answers)

        def commit(c, n):
            came = answers[c][done[c]:done[c] + n]
            done[c] += n
            own[c].add(came)
            waiting[c].append(came)
            while len(waiting[c]) > late:
                known[c].add(waiting[c].pop(0))

        while any(n < len(answer) for n, answer in zip(done, answers)):
            moved = []
            for c, answer in enumerate(answers):
                rest, last = answer[done[c]:], own[c].tokens[-LONGEST_MATCH:]
                if not rest:
                    continue
                if best_place:
                    right = most_right(known if beside else [own[c]], last, rest)
                else:
                    length, at = places([own[c]], last, OWN_ORDERS, OWN_PLACES)
                    guesses = {"own": (length, walk(length, at, True))}
                    if beside:
                        length, at = places(known, last, MEMORY_ORDERS, MEMORY_PLACES)
                        guesses["memory"] = (length, walk(length, at, False))
                    right = n_right(outcomes.choose(guesses), rest)
                    outcomes.note(guesses, rest[:right + 1])
                n = min(right + 1, len(rest))
                n_tokens, n_passes = n_tokens + n, n_passes + 1
                if same_pass:
                    commit(c, n)
                else:
                    moved.append((c, n))
            for c, n in moved:
                commit(c, n)
    return n_tokens / n_passes


def texts_of(arguments):
    if arguments.texts and pathlib.Path(arguments.texts).exists():
        return json.loads(pathlib.Path(arguments.texts).read_text())
    settings = ["model.drafts=0", *arguments.set]
    if arguments.model:
        settings = [f"model.target={arguments.model}", "model.draft=", *settings]
    groups = []
    with started(arguments.bin, settings) as system:
        bench = Bench(system.client, arguments, [])
        for i, prompt in enumerate(spread(demo_prompts(), arguments.requests)):
            replies, _ = bench.answers([bench.request("siblings", 77 + i, choice=c, return_prompt_token_ids=True, proposer=["ngram"], **asking(prompt))
                                        for c in range(N_CHOICES)])
            groups.append({"prompt": replies[0]["prompt_token_ids"], "answers": [reply["token_ids"] for reply in replies]})
    if arguments.texts:
        pathlib.Path(arguments.texts).write_text(json.dumps(groups))
    return groups


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("--texts")
    parser.add_argument("--model", default="")
    parser.add_argument("--requests", type=int, default=30, help="prompts")
    parser.add_argument("--tokens", type=int, default=128, help="of an answer")
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    groups = texts_of(arguments)
    ways = {"own": {"beside": False}, "beside": {}, "a pass late": {"late": 1}, "same pass": {"same_pass": True},
            "best place, own": {"beside": False, "best_place": True}, "best place, beside": {"best_place": True}}
    for name, way in ways.items():
        print(f"{name:20} {replay(groups, **way):.3f}", flush=True)


if __name__ == "__main__":
    main()

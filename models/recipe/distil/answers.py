"""The answers that `foretoken run` wrote: the whole ones, and why the others are none. Standard library only."""
import json


class Lost:
    """Requests that brought no answer, by reason; of each reason the first sentence."""

    def __init__(self):
        self.counts, self.sentences = {}, {}

    def add(self, reason, sentence="", n=1):
        if n > 0:
            self.counts[reason] = self.counts.get(reason, 0) + n
            self.sentences.setdefault(reason, sentence)

    def total(self):
        return sum(self.counts.values())

    def words(self):
        """3 context_length_exceeded ("..."), 1 without tokens"""
        return ", ".join(f"{n} {reason}" + (f' ("{self.sentences[reason]}")' if self.sentences[reason] else "")
                         for reason, n in sorted(self.counts.items(), key=lambda each: -each[1]))


def lines_of(path):
    """What each line holds; of one that was cut off, and of the head of an unfinished file, nothing."""
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict) and "schema" not in found:
                yield found


def are_mostly_whole(path):
    """Whether there is an answer, and no more failures than answers."""
    n_whole = n_failed = 0
    for line in lines_of(path):
        n_failed += "error" in line
        n_whole += "error" not in line
    return 0 < n_whole >= n_failed


def whole(path, n_requests, lost):
    """Each answer that training can use; the others of `n_requests` are counted in `lost`."""
    n_seen = 0
    for answer in lines_of(path):
        n_seen += 1
        if "error" in answer:
            lost.add(answer["error"].get("code", "failed"), answer["error"].get("message", ""))
        elif not answer["token_ids"]:
            lost.add("without tokens")
        elif len(answer.get("logprobs", [])) != len(answer["token_ids"]):
            lost.add("without log-probabilities")
        else:
            yield answer
    lost.add("not asked", n=n_requests - n_seen)

"""Whether a kernel, as PTX, waits for the kernels in front before it touches memory: every way from its entry meets
griddepcontrol.wait before it meets an access to memory that others see, or the end.
Bulk copies and prefetches are let through: the copying lane of the ring takes weights before the wait, and that it takes
nothing else the emulator watches (kernels/emu/memory.h).
"""
import re

WAIT = "griddepcontrol.wait"
TOUCHES = re.compile(r"(ld|st|ldu|atom|red|cp|tex|tld4|suld|sust|sured|multimem|call|discard|applypriority|prefetch)\b")
ALLOWED = re.compile(r"(ld\.(volatile\.)?(param|const|shared|local)|st\.(volatile\.)?(param|shared|local)|(atom|red)\.shared"
                     r"|ld\.(acquire|relaxed)\.\w+\.shared"
                     r"|cp\.async\.bulk\.(shared::(cluster|cta)\.global|prefetch\.L2\.global))\b")
LABEL = re.compile(r"\s*([\w$]+)\s*:(?!:)\s*", re.S)
STATEMENT = re.compile(r"(?:(@!?%?[\w$]+)\s+)?(\S+)\s*(.*)", re.S)


def entries(text):
    """(name, body without its braces) of every kernel"""
    text = re.sub(r"//[^\n]*|/\*.*?\*/|^\s*\.(loc|file|pragma)\b[^\n]*", "", text, flags=re.S | re.M)
    for start in re.finditer(r"\.entry\s+([\w$]+)", text):
        begin = at = text.index("{", start.end())
        depth = 0
        while True:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            if depth == 0:
                break
            at = re.compile(r"[{}]").search(text, at + 1).start()
        yield start[1], text[begin + 1:at]


def statements(body):
    """[(scope, statement)] and (scope, label) -> index; a label may stand once in each pair of braces"""
    found, labels = [], {}
    scope, n_scopes, pending, depth = (), 0, "", 0
    for piece in re.findall(r"[{};]|[^{};]+", body):
        if piece == "{" and not pending.strip():
            n_scopes += 1
            scope += (n_scopes,)
        elif piece == "{":  # of operands
            depth += 1
            pending += piece
        elif piece == "}" and depth > 0:
            depth -= 1
            pending += piece
        elif piece == "}":
            scope = scope[:-1]
        elif piece == ";":
            found.append((scope, pending.strip()))
            pending = ""
        else:
            pending += piece
            while not depth and (label := LABEL.match(pending)):
                labels[scope, label[1]] = len(found)
                pending = pending[label.end():]
            pending = pending if pending.strip() else ""
    return found, labels


def early(body):
    """what is met before the wait, as sorted sentences"""
    code, labels = statements(body)

    def place(scope, name):
        while (scope, name) not in labels:
            scope = scope[:-1]
        return labels[scope, name]

    # A list of targets is a labelled directive.
    listed = [(scope, name) for scope, text in code if text.startswith(".branchtargets")
              for name in re.findall(r"[\w$]+", text[len(".branchtargets"):])]
    met, seen, ways = set(), set(), [0]
    while ways:
        at = ways.pop()
        if at in seen:
            continue
        seen.add(at)
        if at >= len(code):
            met.add("ends without waiting")
            continue
        scope, text = code[at]
        guard, operation, operands = STATEMENT.match(text).groups()
        if operation.startswith("bra"):
            ways.append(place(scope, operands.split()[-1]))
        elif operation.startswith("brx"):
            ways += [place(*target) for target in listed]
            continue
        elif operation in ("ret", "exit"):
            met.add("ends without waiting")
        elif TOUCHES.match(operation) and not ALLOWED.match(operation):
            met.add(" ".join(text.split()))
        goes_on = operation.split(".")[0] not in ("bra", "ret", "exit", "trap") and operation != WAIT
        if goes_on or guard:
            ways.append(at + 1)
    return sorted(met)


def complaints(text):
    """(kernel, what it does before it has waited) of a PTX file; none for devices that cannot overlap launches"""
    target = re.search(r"^\.target\s+sm_(\d+)", text, re.M)
    if not target or int(target[1]) < 90:
        return []
    return [(name, what) for name, body in entries(text) for what in early(body)]

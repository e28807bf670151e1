// The Python half of chat templates: an environment like the one Transformers renders with, and
// guards around what could make large values out of small ones.
#pragma once

namespace foretoken {

inline constexpr const char* kPrelude = R"PY(
import datetime
import json
import re
import sys

import jinja2
import jinja2.ext
import jinja2.runtime
import jinja2.sandbox
import jinja2.utils

LIMIT = 16 << 20  # characters or elements one operation may make
MOST_DIGITS = 4096


class TooLarge(jinja2.exceptions.SecurityError):
    pass


def size_of(value):
    if isinstance(value, bool):
        return 1
    if isinstance(value, int):
        return abs(value)
    try:
        return len(value)
    except TypeError:
        return 1


def refuse_large(size, what):
    if size > LIMIT:
        raise TooLarge(f"{what} would make a value of {size if size < 10**12 else 'far too many'} elements; the limit is {LIMIT}")


def check_width(text):
    """A format with a wide field makes text out of digits."""
    if isinstance(text, str) and re.search(r"%[^a-zA-Z%]*(\d{6,}|\*)", text):
        raise TooLarge("a format has a width of more than five digits, or one that is not written out")


class Formatter(jinja2.sandbox.SandboxedFormatter):
    def format_field(self, value, format_spec):
        if re.search(r"\d{6,}", format_spec):
            raise TooLarge("a format has a width of more than five digits")
        return super().format_field(value, format_spec)


jinja2.sandbox.SandboxedFormatter = Formatter


def total(values):
    return sum(map(size_of, values)) if isinstance(values, (list, tuple)) else size_of(values)


def bound_of(name, values):
    """An upper bound on what a method of a string, or a filter, makes of these values; the first is the subject."""
    subject, rest = values[0], values[1:]
    length = size_of(subject)
    if name == "replace":
        old, new = (list(rest) + ["", ""])[:2]
        return length + (length // max(1, size_of(old)) + 1) * size_of(new)
    if name == "join":  # a method joins its argument, a filter its subject
        parts, glue = (rest[0] if rest else "", subject) if isinstance(subject, str) and rest else (subject, rest[0] if rest else "")
        if isinstance(parts, str) and isinstance(glue, (list, tuple)):
            parts, glue = glue, parts
        return total(parts) + size_of(parts) * size_of(glue)
    if name in ("indent", "expandtabs", "wordwrap", "translate"):
        return length * max([1, *map(size_of, rest)])
    return length + sum(map(size_of, rest))


AMPLIFIERS = {"center", "ljust", "rjust", "zfill", "expandtabs", "replace", "join", "indent", "wordwrap", "batch", "slice",
              "translate", "to_bytes", "round"}


class Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(["+", "*", "**", "%", "-", "/", "//"])

    def call_binop(self, context, operator, left, right):
        if operator == "*":
            if isinstance(left, int) and isinstance(right, int):
                if left.bit_length() + right.bit_length() > MOST_DIGITS:
                    raise TooLarge("a product has too many digits")
            elif not (isinstance(left, float) or isinstance(right, float)):
                refuse_large(size_of(left) * size_of(right), "*")
        elif operator == "**":
            if not isinstance(right, (int, float)) or abs(right) > 256 or size_of(left) > 1 << 64:
                raise TooLarge("a power is too large")
        elif operator == "+" and not isinstance(left, (int, float)):
            refuse_large(size_of(left) + size_of(right), "+")
        elif operator == "%" and isinstance(left, str):
            check_width(left)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context, __obj, *args, **kwargs):
        name = getattr(__obj, "__name__", "")
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, (str, bytes, int)) and name in AMPLIFIERS:
            refuse_large(bound_of(name, [owner, *args, *kwargs.values()]), name)
        return super().call(__context, __obj, *args, **kwargs)


def guard_filter(name, function):
    passes_context = hasattr(function, "jinja_pass_arg")

    def guarded(*args, **kwargs):
        values = [*(args[1:] if passes_context else args), *kwargs.values()]
        if name == "format":
            check_width(values[0])
        elif values:
            refuse_large(bound_of(name, values), name)
        return function(*args, **kwargs)

    if passes_context:
        guarded.jinja_pass_arg = function.jinja_pass_arg
    return guarded


class Generation(jinja2.ext.Extension):
    """{% generation %}…{% endgeneration %} marks what an assistant said, for training; here it only stands aside."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("said"), [], [], body).set_lineno(line)

    def said(self, caller):
        return caller()


def check_name(name):
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace may not hold {name!r}: names there do not begin with an underscore")


class PlainNamespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        values = dict(*args, **kwargs)
        for name in values:
            check_name(name)
        jinja2.utils.Namespace.__init__(self, values)

    def __setitem__(self, name, value):
        check_name(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


STARTED = datetime.datetime.now()


def strftime_now(format):
    """The time of the start: a later date would give the same request another prompt, which is not cached."""
    check_width(format)
    return STARTED.strftime(format)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    if size_of(indent) > 64:
        raise TooLarge("an indent is too wide")
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class PlainDict:
    """What templates call `dict`: the function, without the class behind it."""

    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


def bounded_join(join):
    def joined(seq):
        parts = [str(part) for part in seq]
        refuse_large(sum(map(len, parts)), "~")
        return join(parts)

    return joined


# The operator ~ compiles to these.
jinja2.runtime.str_join = bounded_join(jinja2.runtime.str_join)
jinja2.runtime.markup_join = bounded_join(jinja2.runtime.markup_join)

environment = Environment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
for name in (AMPLIFIERS | {"format"}) & set(environment.filters):
    environment.filters[name] = guard_filter(name, environment.filters[name])
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception
environment.globals["strftime_now"] = strftime_now
environment.globals["namespace"] = PlainNamespace
environment.globals["dict"] = PlainDict()
environment.globals.pop("lipsum", None)

REASONING = ("reasoning_content", "thinking", "reasoning")


class BadInput(Exception):
    pass


def compile_template(source, tool_source):
    """The template for requests without tools and that for those with tools."""
    template = environment.from_string(source)
    return template, template if tool_source is None else environment.from_string(tool_source)


def alias_reasoning(message):
    """Templates read what a model thought under different names."""
    thought = next((message[name] for name in REASONING if message.get(name) is not None), None)
    return message if thought is None else {"thinking": thought, **message, "reasoning_content": thought}


def refuse_constant(text):
    raise BadInput(f"{text} is not a JSON number")


def parse(text, name, kind):
    try:
        value = json.loads(text, parse_constant=refuse_constant)
    except RecursionError:
        raise BadInput(f"{name}: nested too deeply") from None
    except ValueError as error:
        raise BadInput(f"{name}: not JSON: {error}") from None
    if not isinstance(value, kind):
        raise BadInput(f"{name}: expected {'an array' if kind is list else 'an object'}, found {type(value).__name__}")
    return value


def render(templates, tokens, messages, add_generation_prompt, extra, limit):
    messages = parse(messages, "messages", list)
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise BadInput(f"messages[{index}]: expected an object, found {type(message).__name__}")
    variables = {"tools": None, "documents": None, **tokens}
    if extra:
        variables.update(parse(extra, "variables", dict))
    variables["messages"] = [alias_reasoning(message) for message in messages]
    variables["add_generation_prompt"] = add_generation_prompt
    template = templates[0 if variables["tools"] is None else 1]
    pieces, size = [], 0
    for piece in template.generate(variables):
        size += len(piece)
        if size > limit:
            raise TooLarge(f"the prompt has more than {limit} characters")
        pieces.append(piece)
    return "".join(pieces)


def describe():
    version = ".".join(map(str, sys.version_info[:3]))
    return f"Jinja2 {jinja2.__version__}, Python {version} from {json.__file__.rsplit('/', 2)[0]}"
)PY";

}  // namespace foretoken

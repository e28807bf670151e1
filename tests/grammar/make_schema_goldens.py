"""Golden texts for schemas, judged by the package `jsonschema`, which knows nothing of our code.

usage: make_schema_goldens.py FILE     writes one JSON object a line: schema (as text), and lists of JSON texts:
    written      valid, and in the form that an answer has: a grammar must accept it
    wrong        not valid: a grammar must not accept it
    other_form   valid, but with white space, keys in another order or numbers in another form: never written

Schemas are our own: some by hand, some of pydantic's models, some drawn at random (with a fixed seed). Instances of the
latter two are drawn at random and changed a little, so that many are almost valid. Needs jsonschema and pydantic.
"""
import copy
import datetime
import enum
import json
import random
import sys
import uuid
from typing import Annotated, Literal, Optional, Union

import jsonschema
from pydantic import BaseModel, ConfigDict, Field

N_RANDOM_SCHEMAS = 120
N_INSTANCES = 12
LONGEST_TEXT = 300


# ---- schemas by hand: schema, instances (valid or not), texts in another form

STRING = {"type": "string"}
INTEGER = {"type": "integer"}
NODE = {"type": "object", "properties": {"value": INTEGER, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
        "required": ["value"], "additionalProperties": False}


def closed(properties, required=None, **more):
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required,
            "additionalProperties": False, **more}


BY_HAND = [
    (True, [None, True, 0, -1.5, "x", [], {}, [1, {"a": []}], {"a": {"b": [None]}}], [" 1", "[1, 2]", "{ }"]),
    ({}, [1, "a", {"b": 1}], []),
    ({"title": "t", "description": "d", "default": 1, "examples": [1], "$comment": "c", "deprecated": True, "x-ours": 1},
     [1, "a", None], []),
    ({"type": "null"}, [None, False, 0, "null"], []),
    ({"type": "boolean"}, [True, False, None, 0, "true"], []),
    ({"type": "string"}, ["", "a", "é", "\U0001F600", "\"\\/\b\f\n\r\t", "\u0001\x7f", 1, None, ["a"]],
     []),
    ({"type": "integer"}, [0, 7, -7, 10**18, -10**18, 0.5, "1", None], ["1.0", "1e2", "-0.0"]),
    ({"type": "number"}, [0, 7, -7, 0.5, -1.25, 1e30, 1.5e-7, "1", None], []),
    ({"type": ["string", "null"]}, ["a", None, 1, True], []),
    ({"type": ["integer", "array"]}, [1, [], ["x"], "x", 1.5], []),
    # bounds
    ({"type": "integer", "minimum": 3}, [2, 3, 4, 10, 99, 100, -3, 0, 3.5], ["3.0"]),
    ({"type": "integer", "maximum": 3}, [2, 3, 4, 10, -10, -99, 0], []),
    ({"type": "integer", "minimum": -12, "maximum": 345}, [*range(-15, -8), -1, 0, 1, 9, 10, 99, 100, 299, 340, 344, 345, 346, 999], []),
    ({"type": "integer", "exclusiveMinimum": -12, "exclusiveMaximum": 12}, [-13, -12, -11, 0, 11, 12, 13], []),
    ({"type": "integer", "minimum": 1.5, "maximum": 4.5}, [0, 1, 2, 3, 4, 5, 6], []),
    ({"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
     [-(2**63) - 1, -(2**63), -(2**63) + 1, 2**63 - 2, 2**63 - 1, 2**63, 2**64, 0, -1], []),
    ({"type": "integer", "minimum": 0, "maximum": 2**64 - 1}, [-1, 0, 2**64 - 1, 2**64, 10**19, 2 * 10**19], []),
    ({"type": "integer", "minimum": 7, "maximum": 7}, [6, 7, 8, 77], []),
    ({"type": "number", "minimum": 0, "maximum": 1}, [0, 1, 0.5, 0.0001, 0.999999, 1.000001, 1.1, 2, -0.1, -1], ["1e-3"]),
    ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, [0, 1, 0.5, 0.0001, 0.99, 1.1, -0.1], []),
    ({"type": "number", "minimum": -1.25, "maximum": 10.75}, [-1.26, -1.25, -1.24, -1, -0.5, 0, 9.99, 10, 10.7, 10.75, 10.76, 11, 100, -10], []),
    ({"type": "number", "exclusiveMinimum": -0.5, "maximum": 0.25}, [-0.5, -0.49, -0.51, 0, 0.25, 0.26, 0.3, -1, 1], []),
    ({"type": "number", "minimum": 99.5}, [99.4, 99.5, 99.51, 100, 1000, 99, 9, -100], []),
    ({"type": "number", "maximum": -99.5}, [-99.4, -99.5, -99.51, -100, -1000, -99, 9, 100], []),
    ({"minimum": 5}, [4, 5, "a", None, [1], {"a": 1}], []),
    # strings
    ({"type": "string", "minLength": 2}, ["", "a", "ab", "é", "éé", "\U0001F600", "\U0001F600\U0001F600", "\n\n", "abc"], []),
    ({"type": "string", "maxLength": 2}, ["", "a", "ab", "abc", "ééé", "\U0001F600\U0001F600", "\"\\"], []),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ["a", "ab", "abc", "abcd", "\t\t", "éé"], []),
    ({"type": "string", "minLength": 1}, ["", "a", "\n", "abc"], []),
    ({"type": "string", "maxLength": 0}, ["", "a"], []),
    ({"minLength": 2}, ["a", "ab", 1, None, []], []),
    ({"type": "string", "pattern": "^[a-z]+$"}, ["a", "abc", "", "A", "ab1"], []),
    ({"type": "string", "pattern": "b"}, ["b", "abc", "ac", "", "\"b\"", "é b"], []),
    ({"type": "string", "pattern": "^a"}, ["a", "ab", "ba", "a\"b"], []),
    ({"type": "string", "pattern": "a$"}, ["a", "ba", "ab"], []),
    ({"type": "string", "pattern": "^[^x]$"}, ["a", "\"", "\\", "\n", "\u0001", "é", "\U0001F600", "x", "ab"], []),
    ({"type": "string", "pattern": "^(ab|c){2}$"}, ["abab", "abc", "cc", "ab", "c", "ccc"], []),
    ({"type": "string", "pattern": "^\\d{3}-\\d{4}$"}, ["555-1234", "5551234", "555-12345"], []),
    ({"type": "string", "pattern": "^[a-z]+$", "maxLength": 3}, ["a", "abc", "abcd", "", "A"], []),
    ({"type": "string", "pattern": "^x[a-z]*y$", "minLength": 4, "maxLength": 6}, ["xy", "xay", "xaby", "xabcdy", "xabcdey"], []),
    ({"type": "string", "pattern": "^[A-Z]{3}$", "minLength": 1, "maxLength": 10}, ["ABC", "AB", "ABCD"], []),
    ({"type": "string", "format": "date"}, ["2024-02-29", "2026-11-26"], []),
    ({"type": "string", "format": "unheard-of"}, ["", "anything", 1], []),
    # enum, const
    ({"enum": ["red", "green", 1, 2.5, None, True, [1, "a"], {"k": {"a": 1, "b": []}}]},
     ["red", "green", 1, 2.5, None, True, [1, "a"], {"k": {"a": 1, "b": []}}, "blue", False, 2, [1], {"k": {}}, "re", "redd"],
     ["1.0", '{"k": {"a":1,"b":[]}}', '{"k":{"b":[],"a":1}}']),
    ({"const": "a\"b\\c\n\u0001é"}, ["a\"b\\c\n\u0001é", "a"], ['"a\\"b\\\\c\\n\\u0001\\u00e9"']),
    ({"const": {"b": 1, "a": [None, -0.5]}}, [{"b": 1, "a": [None, -0.5]}, {"b": 1}], ['{"a":[null,-0.5],"b":1}']),
    ({"type": "string", "enum": ["a", 1, "b", None]}, ["a", "b", 1, None], []),
    ({"type": "integer", "enum": [1, 2, 3, 4, 5], "minimum": 2, "maximum": 4}, [1, 2, 3, 4, 5], []),
    ({"enum": ["a", "bb", "ccc"], "minLength": 2}, ["a", "bb", "ccc"], []),
    ({"enum": [[1], [1, 2], ["a"]], "items": INTEGER, "minItems": 2}, [[1], [1, 2], ["a"]], []),
    ({"enum": [1, 2, 3], "const": 2}, [1, 2, 3], []),
    ({"enum": [1, 2, 3, "a"], "anyOf": [{"type": "string"}, {"minimum": 3}]}, [1, 2, 3, "a"], []),
    ({"enum": [1, 2, 3], "oneOf": [{"minimum": 2}, {"maximum": 2}]}, [1, 2, 3], []),
    # arrays
    ({"type": "array"}, [[], [1], [1, "a", [None]], {}, "[]"], ["[1 ,2]"]),
    ({"type": "array", "items": INTEGER}, [[], [1], [1, 2, 3], ["a"], [1, "a"]], []),
    ({"type": "array", "items": INTEGER, "minItems": 2}, [[], [1], [1, 2], [1, 2, 3]], []),
    ({"type": "array", "items": INTEGER, "maxItems": 2}, [[], [1], [1, 2], [1, 2, 3]], []),
    ({"type": "array", "items": INTEGER, "minItems": 1, "maxItems": 3}, [[], [1], [1, 2, 3], [1, 2, 3, 4]], []),
    ({"type": "array", "items": False}, [[], [1]], []),
    ({"type": "array", "maxItems": 0}, [[], [1]], []),
    ({"type": "array", "prefixItems": [INTEGER, STRING]}, [[], [1], [1, "a"], [1, "a", None], ["a"], [1, 2]], []),
    ({"type": "array", "prefixItems": [INTEGER, STRING], "items": False}, [[], [1], [1, "a"], [1, "a", 1]], []),
    ({"type": "array", "prefixItems": [INTEGER, STRING], "items": False, "minItems": 2}, [[], [1], [1, "a"], [1, "a", 1]], []),
    ({"type": "array", "prefixItems": [INTEGER], "items": STRING, "minItems": 2, "maxItems": 3},
     [[1], [1, "a"], [1, "a", "b"], [1, "a", "b", "c"], [1, 2], ["a", "b"]], []),
    ({"type": "array", "prefixItems": [INTEGER, STRING, INTEGER], "maxItems": 2}, [[], [1], [1, "a"], [1, "a", 1]], []),
    ({"type": "array", "items": {"type": "array", "items": {"type": "array", "items": INTEGER}}}, [[[[1], []]], [[1]], [[[1, 2]], []]], []),
    ({"type": "array", "items": INTEGER, "uniqueItems": False, "maxItems": 1}, [[1], [1, 1]], []),
    # objects
    ({"type": "object"}, [{}, {"a": 1}, {"a": {"b": 1}, "": None}, [], 1], ['{"a" :1}']),
    (closed({"a": INTEGER, "b": STRING}), [{"a": 1, "b": "x"}, {"a": 1}, {"b": "x"}, {}, {"a": 1, "b": "x", "c": 1}, {"a": "x", "b": "x"}],
     ['{"b":"x","a":1}', '{"a":1, "b":"x"}', '{"\\u0061":1,"b":"x"}']),
    (closed({"a": INTEGER, "b": STRING}, []), [{}, {"a": 1}, {"b": "x"}, {"a": 1, "b": "x"}, {"c": 1}], ['{"b":"x","a":1}']),
    (closed({"a": INTEGER, "b": INTEGER, "c": INTEGER, "d": INTEGER, "e": INTEGER}, []),
     [dict.fromkeys(names, 1) for names in ["", "a", "e", "ae", "bd", "abcde", "ace", "de", "abf"]], []),
    (closed({"a": INTEGER, "b": INTEGER, "c": INTEGER, "d": INTEGER}, ["b"]),
     [dict.fromkeys(names, 1) for names in ["", "a", "b", "ab", "bd", "abcd", "acd", "bcd", "d"]], []),
    (closed({"a": INTEGER, "b": INTEGER, "c": INTEGER}, ["c"]), [dict.fromkeys(names, 1) for names in ["c", "ac", "bc", "abc", "ab", ""]], []),
    ({"type": "object", "properties": {"a": INTEGER, "ab": STRING}, "required": ["a"]},
     [{"a": 1}, {"a": 1, "ab": "x"}, {"a": 1, "ab": 1}, {"a": 1, "abc": 1}, {"a": 1, "": 1, "b": 2}, {"ab": "x"}, {"a": 1, "é": 1}, {"a": 1, "\"": 1, "\\": 1}],
     ['{"a":1,"\\u0061b":"x"}', '{"z":1,"a":1}']),
    ({"type": "object", "properties": {"a": INTEGER, "b": INTEGER}},
     [{}, {"a": 1}, {"b": 1}, {"c": None}, {"a": 1, "c": 1}, {"b": 1, "c": 1, "d": 1}, {"a": "x"}, {"b": "x", "c": 1}, {"aa": "x"}], []),
    ({"type": "object", "additionalProperties": INTEGER}, [{}, {"a": 1}, {"a": 1, "b": 2}, {"a": "x"}], []),
    ({"type": "object", "properties": {"a": STRING}, "additionalProperties": INTEGER}, [{"a": "x"}, {"a": 1}, {"b": 1}, {"a": "x", "b": 1}, {"b": "x"}, {"a": "x", "aa": "x"}], []),
    ({"type": "object", "additionalProperties": INTEGER, "required": ["x", "y"]}, [{"x": 1, "y": 1}, {"x": 1}, {"x": 1, "y": "a"}, {"x": 1, "y": 1, "z": 1}, {"x": 1, "y": 1, "z": "a"}],
     ['{"y":1,"x":1}']),
    ({"type": "object", "properties": {"a\"b": INTEGER, "é\n": INTEGER, "\u0002": INTEGER}, "required": ["a\"b"]},
     [{"a\"b": 1}, {"a\"b": 1, "é\n": 1}, {"a\"b": 1, "é\n": "x"}, {"a\"b": 1, "\u0002": "x"}, {"a\"b": 1, "\u0002": 1, "\u0003": "x"}, {"a\"b": 1, "ë": "x"}], []),
    ({"type": "object", "properties": {"a": False, "b": INTEGER}, "additionalProperties": False}, [{}, {"b": 1}, {"a": 1}, {"a": 1, "b": 1}], []),
    ({"type": "object", "additionalProperties": INTEGER, "minProperties": 1}, [{}, {"a": 1}, {"a": 1, "b": 1}], []),
    (closed({"a": INTEGER, "b": INTEGER}, [], minProperties=1), [{}, {"a": 1}, {"b": 1}, {"a": 1, "b": 1}], []),
    ({"properties": {"a": INTEGER}, "required": ["a"]}, [1, "x", None, [], {"a": 1}, {"a": "x"}, {}], []),
    # anyOf, oneOf, allOf
    ({"anyOf": [STRING, {"type": "null"}]}, ["a", None, 1], []),
    ({"anyOf": [{"type": "integer", "minimum": 5}, {"type": "integer", "maximum": 2}]}, [1, 2, 3, 4, 5, 6], []),
    ({"type": "object", "properties": {"a": INTEGER, "b": INTEGER}, "additionalProperties": False, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
     [{}, {"a": 1}, {"b": 1}, {"a": 1, "b": 1}], []),
    ({"anyOf": [{"minimum": 3}, {"maximum": -3}], "allOf": [{"anyOf": [{"type": "integer"}, {"type": "null"}]}]}, [-4, -3, 0, 3, 4, 3.5, None, "a"], []),
    ({"oneOf": [STRING, INTEGER, {"type": "array", "items": STRING}]}, ["a", 1, ["a"], [1], None, 1.5], []),
    ({"oneOf": [closed({"kind": {"const": "circle"}, "r": INTEGER}), closed({"kind": {"const": "square"}, "side": INTEGER})]},
     [{"kind": "circle", "r": 1}, {"kind": "square", "side": 1}, {"kind": "circle", "side": 1}, {"kind": "x"}], []),
    ({"oneOf": [{"type": "integer", "maximum": 3}, {"type": "integer", "exclusiveMinimum": 3}]}, [2, 3, 4], []),
    ({"oneOf": [closed({"a": INTEGER}), closed({"b": INTEGER})]}, [{"a": 1}, {"b": 1}, {"a": 1, "b": 1}, {}], []),
    ({"allOf": [{"type": "integer", "minimum": 2}, {"maximum": 4}]}, [1, 2, 4, 5, "a"], []),
    ({"allOf": [{"type": "object", "properties": {"a": INTEGER}, "required": ["a"]}, {"properties": {"b": STRING}, "required": ["b"]}]},
     [{"a": 1, "b": "x"}, {"a": 1}, {"b": "x"}, {"a": 1, "b": 1}, {"a": 1, "b": "x", "c": 1}], []),
    ({"allOf": [{"properties": {"a": {"minimum": 2}}}, {"properties": {"a": {"type": "integer"}}, "additionalProperties": False}], "type": "object"},
     [{}, {"a": 1}, {"a": 2}, {"a": 2.5}, {"b": 1}], []),
    ({"allOf": [{"$ref": "#/$defs/a"}], "description": "d", "$defs": {"a": {"type": "integer"}}}, [1, "a"], []),
    # references
    ({"$ref": "#/$defs/a~1b%25", "$defs": {"a/b%": {"type": "string"}}}, ["x", 1], []),
    ({"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/b", "title": "t"}, "b": {"type": "integer"}}}, [1, "x"], []),
    ({"$ref": "#/$defs/node", "$defs": {"node": NODE}}, [{"value": 1}, {"value": 1, "next": None}, {"value": 1, "next": {"value": 2, "next": {"value": 3}}}, {"value": 1, "next": 1}, {"value": 1, "next": {}}], []),
    ({"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}, "name": STRING}, "required": ["children"], "additionalProperties": False},
     [{"children": []}, {"children": [{"children": []}], "name": "x"}, {"children": [{}]}, {"children": [{"children": [{"children": [], "name": "y"}]}]}], []),
    ({"anyOf": [INTEGER, {"type": "array", "items": {"$ref": "#"}}]}, [1, [], [1, [2, []]], ["a"], [[["a"]]]], []),
    ({"type": "object", "properties": {"p": {"$ref": "#/properties/q/items"}, "q": {"type": "array", "items": {"type": "boolean"}}}, "additionalProperties": False},
     [{"p": True}, {"p": 1}, {"q": [True]}, {"q": [1]}], []),
    ({"type": "object", "additionalProperties": {"minProperties": 1, "anyOf": [{"type": "string"}, {"$ref": "#/$defs/a"}]},
      "$defs": {"a": {"type": "object", "additionalProperties": {"minProperties": 1, "anyOf": [{"type": "string"}, {"$ref": "#/$defs/a"}]}}}},
     [{}, {"a": "x"}, {"a": {}}, {"a": {"b": "x"}}, {"a": {"b": {"c": "x"}}}, {"a": {"b": {}}}, {"a": 1}], []),
    ({"type": "array", "items": {"minItems": 1, "anyOf": [{"$ref": "#"}, {"type": "null"}]}}, [[], [None], [[]], [[None]], [[[None], None]], [[[]]], [1]], []),
    ({"$ref": "#/$defs/a", "required": ["x"], "$defs": {"a": {"type": "object", "properties": {"x": INTEGER, "y": INTEGER}, "additionalProperties": False}}},
     [{"x": 1}, {"y": 1}, {"x": 1, "y": 1}, {}], []),
]

# Of texts that the format has and texts that it has not. The package knows some formats alone, others with further
# packages (`jsonschema[format]`): what it knows, it has judged.
FORMAT_CHECKER = jsonschema.Draft202012Validator.FORMAT_CHECKER
FORMATS = {
    "date": (["2024-02-29", "1999-12-31", "2000-02-29"], ["2023-02-29", "1900-02-29", "2024-04-31", "2024-13-01", "24-01-01", ""]),
    "time": (["12:30:00Z", "23:59:59.25+05:30"], ["24:00:00Z", "12:60:00Z", "12:30"]),
    "date-time": (["2024-02-29T12:30:00Z", "2026-11-26T08:00:00.123-08:00"], ["2024-02-30T12:30:00Z", "2024-02-29 12:30:00Z", "2024-02-29"]),
    "uuid": (["123e4567-e89b-12d3-a456-426614174000"], ["123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400g"]),
    "email": (["a.b@example.com"], ["a.b", "a@", "@b.c"]),
    "ipv4": (["127.0.0.1", "255.255.255.255"], ["256.0.0.1", "1.2.3", "01.2.3.4"]),
    "ipv6": (["2001:db8:0:0:0:0:0:1"], ["2001:db8", "g:0:0:0:0:0:0:1"]),
    "uri": (["https://example.com/a?b=c#d", "http://h:80/"], ["no uri", "http://a b/"]),
    "hostname": (["example.com", "a-b.c"], ["-a", "a..b"]),
    "duration": (["P1Y2M3D", "PT5M", "P3W"], ["P", "PT", "1D"]),
}


# ---- pydantic

class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Address(BaseModel):
    street: str
    number: int = Field(ge=1, le=9999)
    zip: Optional[str] = Field(default=None, pattern=r"^[0-9]{5}$")


class Person(BaseModel):
    """A person."""
    name: str = Field(min_length=1, max_length=40)
    age: int = Field(ge=0, lt=150)
    height: Optional[float] = Field(default=None, gt=0, le=3)
    address: Address = Field(description="where")
    tags: list[str] = Field(default=[], max_length=4)
    color: Color = Color.RED


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(default=9, ge=0, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    good: bool


class Owner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    pet: Annotated[Union[Cat, Dog], Field(discriminator="kind")]
    born: datetime.date
    id: uuid.UUID


class Expression(BaseModel):
    model_config = ConfigDict(extra="forbid")
    op: Literal["add", "mul"]
    args: list[Union[int, "Expression"]] = Field(min_length=2, max_length=3)


class Tables(BaseModel):
    counts: dict[str, int]
    pair: tuple[int, str]
    either: Union[int, str, None]
    anything: object = None


MODELS = [Address, Person, Owner, Expression, Tables]


# ---- random schemas

def random_schema(rng, depth):
    kind = rng.choice(["string", "integer", "number", "null", "boolean", "enum"] + ["array", "object", "object", "anyOf"] * (depth > 0))
    if kind == "string":
        schema = {"type": "string"}
        if rng.random() < 0.4: schema["minLength"] = rng.randrange(4)
        if rng.random() < 0.4: schema["maxLength"] = schema.get("minLength", 0) + rng.randrange(4)
        return schema
    if kind in ("integer", "number"):
        schema = {"type": kind}
        places = 0 if kind == "integer" else rng.randrange(3)
        low = round(rng.uniform(-300, 300), places) if places else rng.randrange(-300, 300)
        if rng.random() < 0.6: schema[rng.choice(["minimum", "exclusiveMinimum"])] = low
        if rng.random() < 0.6: schema[rng.choice(["maximum", "exclusiveMaximum"])] = low + rng.randrange(1, 400)
        return schema
    if kind == "enum":
        return {"enum": rng.sample(["a", "b", "", 0, 1, -2.5, None, True, [], ["a", 1], {"k": 1}, "é"], rng.randrange(1, 5))}
    if kind == "array":
        schema = {"type": "array", "items": random_schema(rng, depth - 1)}
        if rng.random() < 0.3: schema["prefixItems"] = [random_schema(rng, depth - 1) for _ in range(rng.randrange(1, 3))]
        if rng.random() < 0.4: schema["minItems"] = rng.randrange(3)
        if rng.random() < 0.4: schema["maxItems"] = schema.get("minItems", 0) + rng.randrange(3)
        return schema
    if kind == "anyOf":
        return {"anyOf": [random_schema(rng, depth - 1) for _ in range(rng.randrange(2, 4))]}
    if kind == "object":
        names = sorted(rng.sample(["a", "ab", "b", "name", "é", "x\"y", "id"], rng.randrange(1, 5)))
        schema = {"type": "object", "properties": {name: random_schema(rng, depth - 1) for name in names},
                  "required": [name for name in names if rng.random() < 0.5]}
        which = rng.random()
        if which < 0.5: schema["additionalProperties"] = False
        elif which < 0.7: schema["additionalProperties"] = random_schema(rng, depth - 1)
        return schema
    return {"type": kind}


SAMPLES = {"date": "2024-02-29", "uuid": "123e4567-e89b-12d3-a456-426614174000"}


def random_instance(rng, schema, root, depth=5):
    """A value made for the schema; not always valid."""
    if "$ref" in schema:
        return random_instance(rng, root["$defs"][schema["$ref"].split("/")[-1]], root, depth - 1)
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            short = [branch for branch in schema[choice] if depth > 0 or "$ref" not in branch]
            return random_instance(rng, rng.choice(short or schema[choice]), root, depth - 1)
    if "enum" in schema: return rng.choice(schema["enum"])
    if "const" in schema: return schema["const"]
    kind = schema.get("type", "null")
    if kind == "string":
        if "pattern" in schema: return rng.choice(["12345", "00000", "1234"])
        if "format" in schema: return SAMPLES[schema["format"]]
        n = rng.randint(schema.get("minLength", 0), min(schema.get("maxLength", 5), 6))
        return "".join(rng.choice("abzé\"\\\n\U0001F600 ") for _ in range(n))
    if kind in ("integer", "number"):
        low = schema.get("minimum", schema.get("exclusiveMinimum", -50))
        high = schema.get("maximum", schema.get("exclusiveMaximum", low + 50))
        value = rng.choice([low, high, rng.uniform(low, high)])
        return round(value) if kind == "integer" else round(value, rng.randrange(5))
    if kind == "array":
        first = schema.get("prefixItems", [])
        n = rng.randint(schema.get("minItems", 0), schema.get("maxItems", 3))
        of = [*first[:n], *[schema.get("items", {})] * (n - len(first))]
        return [random_instance(rng, one, root, depth - 1) for one in of]
    if kind == "object":
        names = [name for name in schema.get("properties", {}) if name in schema.get("required", []) or rng.random() < 0.5]
        value = {name: random_instance(rng, schema["properties"][name], root, depth - 1) for name in names}
        further = schema.get("additionalProperties", {})
        if further is not False and rng.random() < 0.3:
            value["other"] = random_instance(rng, further if isinstance(further, dict) else {}, root, depth - 1)
        return value
    return rng.choice([True, False]) if kind == "boolean" else None


def changed(rng, value):
    """The value with one thing changed somewhere: often no longer valid, sometimes still."""
    value = copy.deepcopy(value)
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        what = rng.random()
        if what < 0.25: del value[key]
        elif what < 0.4: value["new"] = rng.choice([1, "a", None])
        else: value[key] = changed(rng, value[key])
        return value
    if isinstance(value, list) and rng.random() < 0.8:
        what = rng.random()
        if value and what < 0.3: value.pop()
        elif value and what < 0.7: value[-1] = changed(rng, value[-1])
        else: value.append(rng.choice([1, "a", None, *value]))
        return value
    if isinstance(value, str) and rng.random() < 0.8: return value + "x" if rng.random() < 0.5 else value[:-1]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and rng.random() < 0.8: return value + rng.choice([-1, 1, 0.5, 100])
    return rng.choice([None, True, 0, 12, -3.5, "", "ab", [], {}, {"a": 1}])


# ---- the form that an answer has

def applied(schemas, root):
    """The schemas with those that they apply to the same value: of references and of choices."""
    found, unread = [], list(schemas)
    while unread:
        schema = unread.pop(0)
        if not isinstance(schema, dict) or any(schema is one for one in found): continue
        found.append(schema)
        for keyword in ("allOf", "anyOf", "oneOf"): unread += schema.get(keyword, [])
        if "$ref" in schema:
            place = root
            for step in schema["$ref"].split("/")[1:]:
                place = place[step.replace("%25", "%").replace("~1", "/")]
            unread.append(place)
    return found


def in_order(value, schemas, root):
    """The value with the keys of its objects in the order of `properties`, then `required`, then its own."""
    schemas = applied(schemas, root)
    if isinstance(value, list):
        first = [schema.get("prefixItems", []) for schema in schemas]
        return [in_order(one, [*(of[i] for of in first if i < len(of)), *(schema.get("items") for schema in schemas)], root)
                for i, one in enumerate(value)]
    if not isinstance(value, dict): return value
    listed = [name for schema in schemas for name in schema.get("properties", {})]
    required = [name for schema in schemas for name in schema.get("required", [])]
    names = [name for name in dict.fromkeys([*listed, *required, *value]) if name in value]
    of_member = lambda name: [schema.get("properties", {}).get(name, schema.get("additionalProperties")) for schema in schemas]
    return {name: in_order(value[name], of_member(name), root) for name in names}


def with_plain_numbers(value):
    """Whole numbers without a fraction, and few digits behind the point; none in exponential form."""
    if isinstance(value, list): return [with_plain_numbers(one) for one in value]
    if isinstance(value, dict): return {name: with_plain_numbers(one) for name, one in value.items()}
    if not isinstance(value, float): return value
    value = round(value, 5)
    return int(value) if value == int(value) and abs(value) < 1e15 else value


def text_of(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def row_of(schema, instances, other_form=()):
    validator = jsonschema.Draft202012Validator(schema, format_checker=FORMAT_CHECKER)
    row = {"schema": text_of(schema), "written": [], "wrong": [], "other_form": list(other_form)}
    for instance in instances:
        text = text_of(in_order(instance, [schema], schema))
        row["written" if validator.is_valid(instance) else "wrong"].append(text)
    for text in other_form: assert validator.is_valid(json.loads(text)), text
    for key in row: row[key] = row[key] if key == "schema" else list(dict.fromkeys(row[key]))
    return row


def drawn_row(schema, rng):
    made = [with_plain_numbers(random_instance(rng, schema, schema)) for _ in range(N_INSTANCES)]
    almost = [with_plain_numbers(changed(rng, value)) for value in made]
    return row_of(schema, [value for value in [*made, *almost] if len(text_of(value)) < LONGEST_TEXT])


def main():
    rng = random.Random(7)
    rows = [row_of(*case) for case in BY_HAND]
    for name, (right, wrong) in FORMATS.items():
        schema = {"type": "string", "format": name}
        if name in FORMAT_CHECKER.checkers:
            for text in right: FORMAT_CHECKER.check(text, name)
            if name != "email":  # of which the package asks for "@" alone
                assert not any(FORMAT_CHECKER.conforms(text, name) for text in wrong), name
        rows.append({"schema": text_of(schema), "written": [text_of(text) for text in right],
                     "wrong": [text_of(text) for text in wrong], "other_form": []})
    rows += [drawn_row(model.model_json_schema(), rng) for model in MODELS]
    rows += [drawn_row(random_schema(rng, 3), rng) for _ in range(N_RANDOM_SCHEMAS)]
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        for row in rows: file.write(text_of(row) + "\n")


if __name__ == "__main__":
    main()

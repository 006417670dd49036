"""Random chat templates and messages: a grammar of the template language, and mutations of given templates.

Everything comes from one random.Random, so a seed names a case.
"""

import random

NAMES = ["x", "y", "items", "messages", "message", "ns", "text", "number", "flag", "nothing", "missing_name", "data", "tools", "loop", "bos_token"]
ATTRIBUTES = ["role", "content", "a", "b", "items", "keys", "get", "x", "name", "tool_calls", "function", "0", "length", "upper", "index"]
STRINGS = ["", "a", "role", "content", "Hello World", " pad ", "é", "世界 x", "a,b,c", "%s", "{}", "{0}", "x'y", 'q"q', "line\\nbreak", "<b>&", "user", "A_b-c", "12", "1.5", "ß"]
NUMBERS = ["0", "1", "2", "3", "-1", "10", "1.5", "0.0", "2.50", "1e3", "1_000", "0x1F", "100000000000000000000"]
UNARY_FILTERS = ["upper", "lower", "title", "capitalize", "trim", "length", "count", "first", "last", "list", "string", "int", "float", "abs", "round",
                 "tojson", "e", "safe", "reverse", "sort", "unique", "items", "dictsort", "join", "sum", "max", "min", "default", "wordcount",
                 "indent", "center", "urlencode", "map", "select", "reject", "forceescape", "truncate"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false", "mapping", "sequence", "iterable",
         "callable", "odd", "even", "lower", "upper", "escaped"]
METHODS = ["upper()", "lower()", "strip()", "lstrip('a ')", "rstrip()", "split()", "split(',')", "split(',', 1)", "rsplit(None, 1)", "startswith('a')",
           "endswith(('a', 'd'))", "replace('a', 'bb')", "replace('', '-')", "title()", "find('o')", "count('l')", "splitlines()", "join(['p', 'q'])",
           "items()", "keys()", "values()", "get('a')", "get('zz', 7)", "append(1)", "index('a')", "format(1, a=2)", "zfill(5)", "isdigit()",
           "partition('b')", "removeprefix('a')", "capitalize()", "center(9, '*')", "copy()", "swapcase()", "isupper()", "expandtabs()", "rpartition('o')"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "and", "or", "==", "!=", "<", "<=", ">", ">=", "in", "not in"]


class Grammar:
    def __init__(self, rng):
        self.rng, self.macros = rng, []

    def pick(self, options):
        return self.rng.choice(options)

    def string(self):
        text = self.pick(STRINGS)
        return f'"{text}"' if "'" in text else f"'{text}'"

    def atom(self):
        kind = self.rng.random()
        if kind < 0.45:
            return self.pick(NAMES)
        if kind < 0.65:
            return self.string()
        if kind < 0.85:
            return self.pick(NUMBERS)
        return self.pick(["true", "false", "none", "True", "None", "[]", "{}", "()", "range(4)", "namespace(a=1)", "dict(a=1, b='z')"])

    def expression(self, depth=None):
        if depth is None:
            depth = self.pick([1, 1, 2, 2, 3])
        if depth <= 0:
            return self.atom()
        inner = lambda: self.expression(depth - 1 - self.rng.randrange(2))
        kind = self.rng.randrange(20)
        if kind < 3:
            return self.atom()
        if kind < 6:
            return f"{inner()} {self.pick(BINARY)} {inner()}"
        if kind == 6:
            return f"({inner()})"
        if kind == 7:
            return f"{inner()} if {inner()}" + (f" else {inner()}" if self.rng.random() < 0.8 else "")
        if kind == 8:
            return f"({inner()}).{self.pick(METHODS)}"
        if kind == 9:
            return f"{self.atom()}.{self.pick(ATTRIBUTES)}"
        if kind == 10:
            return f"{self.atom()}[{inner()}]"
        if kind == 11:
            part = lambda: self.pick(["", "", "0", "1", "-1", "2", "-2", "9"])
            return f"{self.pick([self.pick(NAMES), self.string(), '[1, 2, 3]'])}[{part()}:{part()}{self.pick(['', ':' + self.pick(['', '-1', '2', '1'])])}]"
        if kind < 15:
            unknown = self.rng.random() < 0.01
            return f"{inner()} | nofilter" if unknown else self.filtered(inner())
        if kind == 15:
            return f"{inner()} is {self.pick(['', 'not '])}{self.pick(TESTS)}"
        if kind == 16:
            return f"{inner()} is {self.pick(['divisibleby 2', 'eq(1)', 'sameas(none)', 'in [1, 2]', 'gt 1', 'ne x'])}"
        if kind == 17:
            return "[" + ", ".join(inner() for _ in range(self.rng.randrange(4))) + "]"
        if kind == 18:
            return "{" + ", ".join(f"{self.string()}: {inner()}" for _ in range(self.rng.randrange(3))) + "}"
        return f"{self.pick(['not ', '-', '+'])}{inner()}"

    def filtered(self, subject):
        rng = self.rng
        with_arguments = [
            f"join({self.string()})", f"default({self.atom()}, {self.pick(['true', 'false'])})", f"replace({self.string()}, {self.string()})",
            f"tojson(indent={self.pick(['2', '4', '0', 'none'])})", "tojson(separators=(',', ':'))", "tojson(ensure_ascii=true, sort_keys=true)",
            f"indent({self.pick(['2', '4'])}, {self.pick(['true', 'false'])})", "map('upper')", f"map(attribute={self.string()})", "map(attribute='role') | list",
            "selectattr('role', 'equalto', 'user') | list", "selectattr('role') | list", "rejectattr('content') | list", "select('string') | list",
            "reject('none') | list", "sort(attribute='role')", "groupby('role')", "batch(2) | list", "batch(2, 'z') | list", "slice(2) | list",
            f"round({self.pick(['1', '2', '0'])}, {self.string()})", "round(1)", "truncate(5)", "dictsort(by='value')", "dictsort(reverse=true)", "int(7)",
            "format(1)", "first | default('none')", "sum(attribute='b')", "unique | list", "items | list", "attr('a')", "sort(reverse=true)", "trim('a')",
            "string | length", "list | tojson", "reverse | list", "map('int') | sum", "map('length') | list", "max(attribute='role')"]
        return f"({subject}) | {self.pick(with_arguments) if rng.random() < 0.55 else self.pick(UNARY_FILTERS)}"

    def block(self, tag):
        return f"{self.pick(['{%', '{%-', '{%', '{%+'])} {tag} {self.pick(['%}', '-%}', '%}', '+%}'])}"

    def data(self):
        return self.pick(["text", " ", "\n", "\n\n  ", "  <|im_start|>", "{ x }", "a\r\nb", "\t", "  \n"])

    def body(self, depth):
        return "".join(self.statement(depth) for _ in range(self.rng.randrange(1, 4)))

    def statement(self, depth):
        rng = self.rng
        kind = rng.randrange(24) if depth > 0 else rng.randrange(9)
        if kind < 3:
            return self.data()
        if kind < 8:
            return f"{self.pick(['{{', '{{-'])} {self.expression()} {self.pick(['}}', '-}}'])}"
        if kind == 8:
            return self.pick(["{# note #}", "{#- note -#}", "  {# a\nb #}\n", "{% raw %}{{ x }}{% endraw %}\n", "{%- raw -%} {% if %} {%- endraw +%} "])
        body = self.body(depth - 1)
        if kind < 12:
            other = self.block("else") + self.body(depth - 1) if rng.random() < 0.5 else ""
            middle = self.block(f"elif {self.expression(2)}") + self.body(depth - 1) if rng.random() < 0.3 else ""
            return self.block(f"if {self.expression(2)}") + body + middle + other + self.block("endif")
        if kind < 16:
            target = self.pick(["x", "message", "y", "k, v", "item"])
            source = self.pick(["messages", "data", "data.items()", "range(3)", "'abc'", "items", self.expression(2), "messages[::-1]", "data | dictsort"])
            condition = f" if {self.expression(1)}" if rng.random() < 0.25 else ""
            inside = self.pick(["", "{{ loop.index }}", "{{ loop.last }}{{ loop.first }}", "{{ loop.length }}", "{{ loop.nextitem }}", "{{ loop.previtem is defined }}",
                                "{{ loop.cycle('a', 'b') }}", "{{ loop.revindex0 }}", "{{ loop.changed(x) }}", "{% if loop.index > 2 %}{% break %}{% endif %}",
                                "{% if loop.index0 == 1 %}{% continue %}{% endif %}", "{{ x }}", "{{ message.role }}"])
            other = self.block("else") + self.body(depth - 1) if rng.random() < 0.2 else ""
            return self.block(f"for {target} in {source}{condition}") + inside + body + other + self.block("endfor")
        if kind < 19:
            return self.block(f"set {self.pick(['x', 'y', 'ns.a', 'text', 'x, y', 'number', 'items'])} = {self.expression()}")
        if kind == 19:
            return self.block(f"set {self.pick(['x', 'text', 'ns.b', 'y | upper', 'y | trim | length'])}") + body + self.block("endset")
        if kind == 20:
            name = self.pick(["m", "helper"])
            use = self.pick([f"{{{{ {name}({self.expression(1)}) }}}}", f"{{{{ {name}(1, b=2) }}}}", f"{{% call {name}(1) %}}called{{% endcall %}}", "", f"{{{{ {name}(1, 2, 3) }}}}"])
            inside = self.pick(["", "{{ a }}{{ b }}", "{{ caller() if caller is defined else 'none' }}", "{{ varargs }}", "{{ kwargs }}", "{{ x }}"])
            return self.block(f"macro {name}(a, b={self.expression(1)})") + inside + body + self.block("endmacro") + use
        if kind == 21:
            return self.block(f"with x = {self.expression(1)}, z = x") + body + self.block("endwith")
        if kind == 22:
            filters = ["upper", "trim", "replace('a', 'b') | title", "indent"]
            return self.block(f"filter {self.pick(filters)}") + body + self.block("endfilter")
        return self.block("generation") + body + self.block("endgeneration")

    def template(self):
        # Mostly small: most random expressions are errors, and one error is all that a template shows.
        start = "{% set ns = namespace(a=0, b='q') %}" if self.rng.random() < 0.9 else ""
        depth, statements = self.pick([(1, 1), (1, 2), (2, 1), (2, 2), (3, 4)])
        return start + "".join(self.statement(depth) for _ in range(statements))


VARIABLES = {
    "x": 5, "y": [3, 1, 2], "items": ["b", "A", "c", "a"], "text": "Hello <b> wörld\n two", "number": 2.5, "flag": True, "nothing": None,
    "data": {"b": 2, "a": "one", "C": [1, None, True, 1.0, "é\"'\n"], "items": "shadow"}, "message": {"role": "user", "content": "outer"},
}


def random_chat(rng):
    words = ["Hi", " spaced ", "", "two\nlines", "é世界😀", "<think>\nwhy\n</think>\n\nso", "{\"a\": 1}", "'quoted' \"text\"", "<|im_end|>"]
    chat = []
    for _ in range(rng.randrange(1, 6)):
        message = {"role": rng.choice(["user", "assistant", "system", "tool", "user", "assistant"]), "content": rng.choice(words)}
        if rng.random() < 0.15:
            message["content"] = [{"type": "text", "text": rng.choice(words)} for _ in range(rng.randrange(3))]
        if rng.random() < 0.05:
            message["content"] = None
        if message["role"] == "assistant" and rng.random() < 0.3:
            arguments = rng.choice([{"city": "Paris", "n": 3}, {}, {"deep": {"a": [1, 2.5, None, True]}}, '{"city": "x"}'])
            message["tool_calls"] = [{"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}]
        if message["role"] == "assistant" and rng.random() < 0.2:
            message["reasoning_content"] = rng.choice(words)
        chat.append(message)
    return chat


def mutate(rng, source, others):
    """The template with some of its tokens dropped, doubled, exchanged, or replaced by those of another."""
    import re

    cut = lambda text: re.findall(r"\{%[-+]?|[-+]?%\}|\{\{-?|-?\}\}|\{#|#\}|\w+|\s+|[^\w\s]", text)
    tokens, donor = cut(source), cut(rng.choice(others))
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(tokens))
        kind = rng.randrange(5)
        if kind == 0:
            del tokens[at]
        elif kind == 1:
            tokens.insert(at, tokens[at])
        elif kind == 2:
            tokens[at] = rng.choice(donor)
        elif kind == 3:
            other = rng.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        else:
            begin = rng.randrange(len(donor))
            tokens[at:at] = donor[begin:begin + rng.randrange(1, 12)]
        if not tokens:
            return source
    return "".join(tokens)

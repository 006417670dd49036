#!/usr/bin/env python3
"""The rules of the tree that a compiler does not enforce (ARCHITECTURE.md, "Layers"):

- a folder of src/ includes only itself and the folders below it (the table here), by the path from src/; the same for the rooms
  of a folder that has some (`text/grammar`), whose tests may see all of its rooms;
- intrinsics stand in src/numerics/isa/ alone;
- no libm function decides a bit of a result;
- a device's pointer is known to tensor/ and kernels/ alone;
- Boost is http's;
- what may not be included is not reached through the headers of another folder either;
- a kernel's .inl includes no standard header;
- a type of a namespace stands in one file: two of one name would share the functions that a linker merges;
- src/ holds no kind of file that these rules do not read;
- no file is longer than 600 lines.

Prints `file:line: rule` a violation and one line PASS or FAIL. --self-test plants one violation of each rule and
requires that it is found.
"""
import functools
import re
import sys
import tempfile
from pathlib import Path

# What each folder may include, besides itself, base/ and observe/. A folder that sees the model sees its vocabulary
# too: tensor/ (shapes, buffers) and numerics/ (profiles, rounding). A folder with rows for its rooms has files in these rooms and in
# itself: what stands in itself all its rooms may include, and it none of them. Whoever may include the folder may include its rooms.
LAYERS = {
    "base": None,  # nothing at all
    "observe": [],
    "numerics": [],
    "tensor": [],
    "kernels": ["numerics", "tensor"],
    "parallel": ["numerics", "tensor"],
    "launch": ["parallel", "numerics", "tensor"],
    "model": ["kernels", "parallel", "numerics", "tensor"],
    "checkpoint": ["model", "numerics", "tensor"],
    "sync": ["checkpoint", "model", "numerics", "tensor"],
    "text": [],
    "text/tokenizer": [],
    "text/message": [],
    "text/template": ["text/tokenizer"],
    "text/grammar": ["text/tokenizer", "text/message"],
    "engine": ["model", "kernels", "parallel", "numerics", "tensor"],
    "train": ["model", "kernels", "parallel", "numerics", "tensor"],
    "store": [],
    "losses": ["train", "numerics"],
    "serving": ["engine", "checkpoint", "text", "model", "parallel", "numerics", "tensor"],
    "fleet": ["sync", "serving", "engine", "checkpoint", "model", "parallel", "numerics", "tensor"],
    "planning": ["serving", "engine", "train", "checkpoint", "model", "parallel", "numerics", "tensor"],
    "parity": ["serving", "losses", "engine", "train", "checkpoint", "model", "parallel", "numerics", "tensor"],
    "trained": ["serving", "engine", "train", "checkpoint", "model", "parallel", "numerics", "tensor"],
    "host": ["trained", "serving", "losses", "engine", "train", "checkpoint", "store", "model", "parallel", "numerics", "tensor"],
    "runs": ["trained", "serving", "losses", "train", "checkpoint", "text", "model", "parallel", "numerics", "tensor"],
    "rl": ["runs", "serving", "text"],
    "jobs": ["rl", "runs", "fleet", "sync", "trained", "serving", "losses", "train", "text"],
    "api": ["host", "runs", "losses", "planning", "serving"],
    "http": ["api"],
    "benchmark": ["serving", "engine", "train", "checkpoint", "text", "model", "kernels", "numerics", "tensor"],
    "cli": ["launch", "http", "api", "jobs", "rl", "runs", "trained", "parity", "planning", "serving", "losses", "benchmark", "fleet", "sync"],
}
# Single headers from elsewhere: what one number is (its bits, no arithmetic) is known to whoever holds buffers of them; how published
# tokenizers split text, to whoever reads a file that names one.
SINGLE_HEADERS = {"tensor": ["numerics/element.h"], "checkpoint": ["text/tokenizer/split_patterns.h"]}
# These hold use cases, whose headers name the types that they are given: they reach what the folders in their row may include.
# All others reach what is in their own row alone, through whatever header: rl/ sees the ports of serving/ and runs/, and nothing of engine/ or
# train/ with them.
REACH_BELOW = ("checkpoint", "losses", "serving", "fleet", "planning", "parity", "trained", "host", "runs", "jobs", "api", "http", "benchmark", "cli")
CODE = (".h", ".cpp", ".cu", ".inl", ".inc")
NO_CODE = (".cmake", ".proto")  # what else src/ holds
LONGEST_FILE = 600
LIBM_FREE = ("numerics", "kernels", "model", "engine", "train")
LIBM = ("acos acosh asin asinh atan atan2 atanh cbrt cos cosh erf erfc exp exp2 expm1 hypot lgamma log log10 log1p "
        "log2 pow sin sinh tan tanh tgamma").split()

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
INTRINSIC = re.compile(r"\b_mm\d*_\w+|\b__m(?:128|256|512)\w*|\b__builtin_ia32_\w+")
INTRINSIC_HEADERS = re.compile(r"^(?:\w+intrin\.h)$")
LIBM_QUALIFIED = re.compile(r"\bstd\s*::\s*(?:%s)[fl]?\s*[(<]|\b__builtin_(?:%s)[fl]?\s*\(" % (("|".join(LIBM),) * 2))
LIBM_SUFFIXED = re.compile(r"(?<![\w.>:])(?:::\s*)?(?:%s)[fl]\s*\(" % "|".join(LIBM))
LIBM_BARE = re.compile(r"(?<![\w.>:])(?:::\s*)?(?:%s)\s*\(" % "|".join(LIBM))


TOKEN = re.compile(r'''^[ \t]*\#[ \t]*include[^\n]*|//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"
                       |(?<!\w)'(?:\\.|[^'\\\n])+\'''', re.S | re.M | re.X)


def without_comments_and_strings(text):
    """The code alone, line for line; #include lines stay as they are."""
    def kept(token):
        return token[0] if token[0].lstrip().startswith("#") else " " + "\n" * token[0].count("\n")

    return TOKEN.sub(kept, text).split("\n")


def room_of(name):
    """The row of the table for a path from src/: its room, or its folder; None for what is in no row."""
    folder, _, rest = name.partition("/")
    room = f"{folder}/{rest.split('/')[0]}"
    return room if room in LAYERS else folder if folder in LAYERS else None


@functools.cache
def rooms(folder):
    return [row for row in LAYERS if row.startswith(folder + "/")]


@functools.cache  # asked for each file of each closure
def may_include(room, is_test=False):
    folder, below = room.split("/")[0], LAYERS[room]
    if below is None:
        return {room}
    allowed = {room, folder, "base", "observe", *below, *(rooms(folder) if is_test else ())}
    return allowed.union(*(rooms(other) for other in allowed if other != folder))


@functools.cache
def may_reach(room, is_test=False):
    reached = may_include(room, is_test)
    while room in REACH_BELOW and not reached >= (more := set().union(*map(may_include, reached))):
        reached = reached | more
    return reached


class Tree:
    """The code of src/ and what each file includes, through other files too."""

    def __init__(self, root):
        self.lines, self.includes, self.closures = {}, {}, {}
        for path in sorted((root / "src").rglob("*")):
            if path.suffix in CODE and path.is_file():
                name = path.relative_to(root / "src").as_posix()
                self.lines[name] = without_comments_and_strings(path.read_text(errors="replace"))
                self.includes[name] = [(n, m[1] == '"', m[2]) for n, line in enumerate(self.lines[name], 1) if (m := INCLUDE.match(line))]

    def closure(self, name):
        """{what is included: the way to it}, quoted names and <those> of libraries, from this file's own on."""
        if name not in self.closures:
            found, waiting = {}, [(name, ())]
            while waiting:
                at, way = waiting.pop(0)
                for _, quoted, target in self.includes.get(at, ()):
                    key = target if quoted else f"<{target}>"
                    if key not in found:
                        found[key] = (*way, target)
                        waiting.append((target if quoted else "", (*way, target)))
            self.closures[name] = found
        return self.closures[name]


def hidden_from(file, key):
    """Why this file may not see a header (or <one> of a library), however it comes to it; None when it may."""
    name, room = key.strip("<>"), room_of(file)
    folder, target = room.split("/")[0], name.split("/")[0]
    if key[0] == "<":
        if target == "boost" and folder != "http":
            return f"{folder}/ may not include Boost; http/ may"
        if INTRINSIC_HEADERS.match(name) and folder not in ("numerics", "kernels"):
            return f"{folder}/ may not see intrinsics"
    elif target in LAYERS and room_of(name) not in may_reach(room, file.endswith("_test.cpp")) and name not in SINGLE_HEADERS.get(folder, ()):
        return f"{room}/ may not reach {room_of(name)}/"
    elif name.endswith("device_pointer.h") and folder not in ("kernels", "tensor"):
        return f"{folder}/ may not see a device's pointer; kernels/ and tensor/ may"
    return None


def check_closure(tree, name):
    """What a file sees through the files it includes, and may not see: one violation a line of #include."""
    found = []
    for number, quoted, target in tree.includes[name]:
        if quoted and target in tree.lines and not hidden_from(name, target):
            for key, way in tree.closure(target).items():
                if reason := hidden_from(name, key):
                    found.append((number, f"{reason}: {' -> '.join((target, *way))}"))
                    break
    return found


def check_source(tree, relative):
    """The violations of one C++ file, as (line, text)."""
    folder = relative.parts[0]
    is_test = relative.name.endswith("_test.cpp")
    if folder not in LAYERS:
        return [(1, f"src/{folder} is not in the table of layers; allowed are {', '.join(LAYERS)}")]
    room = room_of(relative.as_posix())
    if rooms(folder) and room == folder and len(relative.parts) > 2:
        return [(1, f"src/{'/'.join(relative.parts[:2])} is no room of {folder}/; allowed are {', '.join(rooms(folder))}")]
    allowed = may_include(room, is_test)
    lines = tree.lines[relative.as_posix()]
    uses_libm_header = any((m := INCLUDE.match(line)) and m[2] in ("cmath", "math.h", "complex") for line in lines)
    pause_only = relative.as_posix() == "base/thread_pool.cpp"
    found = check_closure(tree, relative.as_posix())
    for number, line in enumerate(lines, 1):
        if match := INCLUDE.match(line):
            quoted, name = match[1] == '"', match[2]
            target = name.split("/")[0]
            if quoted and "/" not in name:
                found.append((number, f'includes "{name}" without its folder; write the path from src/'))
            elif quoted and target in LAYERS and room_of(name) not in allowed and name not in SINGLE_HEADERS.get(folder, ()):
                may = ", ".join(sorted(allowed - {room})) or "nothing"
                found.append((number, f"{room}/ may not include {room_of(name)}/ (it may: {may})"))
            elif quoted and target not in LAYERS:
                found.append((number, f'includes "{name}", and src/{target} is not in the table of layers'))
            if name.endswith("device_pointer.h") and folder not in ("kernels", "tensor"):
                found.append((number, f"{folder}/ may not see a device's pointer; kernels/ and tensor/ may"))
            if not quoted and target == "boost" and folder != "http":
                found.append((number, f"{folder}/ may not include Boost; http/ may"))
            if INTRINSIC_HEADERS.match(name) and relative.parts[:2] != ("numerics", "isa") and not pause_only:
                found.append((number, f"<{name}> outside src/numerics/isa/"))
            if not quoted and relative.suffix == ".inl":
                found.append((number, f"<{name}> in a kernel's .inl, which is compiled for instructions that a machine may lack; kernels/prelude.h has it"))
            continue
        if relative.parts[:2] != ("numerics", "isa"):
            for match in INTRINSIC.finditer(line):
                if not (pause_only and match[0] == "_mm_pause"):
                    found.append((number, f"{match[0]} outside src/numerics/isa/"))
                    break
        if folder in LIBM_FREE and not is_test:
            match = LIBM_QUALIFIED.search(line) or LIBM_SUFFIXED.search(line)
            match = match or (uses_libm_header and LIBM_BARE.search(line))
            if match:
                found.append((number, f"{match[0].rstrip('(< ')} is libm's; numerics/ has our own"))
    return found


# What opens a scope: a namespace, a type (but no `Outer::Inner`, which is its outer one's), anything else.
SCOPE = re.compile(r"\bnamespace(\s+[\w:]+)?\s*\{|\b(?:class|struct|union|enum(?:\s+class)?)\s+(?:alignas\([^)]*\)\s*)?(\w+)(?:\s+final)?\s*(?::(?!:)[^;{}()]*)?\{|[{}]")


def types_of(lines):
    """(name with its namespaces, line) of each type that stands in a namespace of its own name, in the code of a file."""
    code, scopes = "\n".join(lines), []
    for match in SCOPE.finditer(code):
        if match[0] == "}":
            scopes = scopes[:-1]
            continue
        if match[2] and scopes and all(scopes):
            yield "::".join((*scopes, match[2])), code.count("\n", 0, match.end()) + 1
        # An unnamed namespace, a type and a function's body hide what they hold: "".
        scopes.append((match[1] or "").strip() if match[0].startswith("namespace") else "")


def check_types(tree):
    """A type that another file has too, as (file, line, text)."""
    found, first = [], {}
    for name, lines in tree.lines.items():
        for kind, line in types_of(lines):
            if first.setdefault(kind, name) != name:
                found.append((name, line, f"{kind} is a type of {first[kind]} too; one of them needs another name"))
    return found


def check_table(page):
    """Whether includes go downward in the table, and ARCHITECTURE.md has the same one: a sentence a fault."""
    order = list(LAYERS)
    upward = [f"{row} may include {other}, which is no row above it" for row, below in LAYERS.items() for other in below or () if other not in order[: order.index(row)]]
    told = {row: [name for name in re.split(r"[, ]+", may) if name in LAYERS]
            for row, may in re.findall(r"^\| `([\w/]+)` \| [^|]* \| ([^|]*)\|$", page, re.M)}
    # The page names a room's own folder, and for base what it may not include.
    wanted = {row: ["text", *below] if "/" in row else below for row, below in LAYERS.items()}
    wrong = [f"ARCHITECTURE.md says that {row} may include {told.get(row, 'nothing, and has no such row')}, the table here {below}"
             for row, below in wanted.items() if below is not None and told.get(row) != below]
    return upward + wrong + [f"ARCHITECTURE.md has a row {row}, which is no folder here" for row in told if row not in LAYERS]


def check_tree(root):
    violations, files, tree = [], 0, Tree(root)
    lengths = [p for folder in ("src", "tools", "tests", "python", "cmake") for p in (root / folder).rglob("*")
               if p.suffix in (*CODE, ".py", ".sh", ".cmake") and p.is_file()]
    for path in sorted(lengths):
        files += 1
        count = path.read_bytes().count(b"\n")
        if count > LONGEST_FILE:
            violations.append((path, count, f"{count} lines; at most {LONGEST_FILE}, one concept a file"))
    for path in sorted((root / "src").rglob("*")):
        if path.suffix in CODE and path.is_file():
            violations += [(path, number, text) for number, text in check_source(tree, path.relative_to(root / "src"))]
        elif path.is_file() and path.suffix not in NO_CODE:
            violations.append((path, 1, f"is no file that is read here; allowed are {', '.join((*CODE, *NO_CODE))}"))
    violations += [(root / "src" / name, line, text) for name, line, text in check_types(tree)]
    return [f"{p.relative_to(root)}:{n}: {t}" for p, n, t in violations], files


def self_test():
    """Each planted file must give exactly the violation at the line named here; the clean ones none."""
    planted = {
        "src/engine/a.cpp": ('#include "train/trainer.h"\n', 1),
        "src/train/a.cpp": ('\n#include "engine/engine.h"\n', 2),
        "src/kernels/a.h": ('#include "model/model.h"\n', 1),
        "src/http/a.cpp": ('#include "engine/engine.h"\n', 1),
        "src/rl/a.cpp": ('#include "train/trainer.h"\n', 1),
        "src/tensor/a.h": ('\n#include "numerics/reduce.h"\n', 2),
        "src/base/a.h": ('#include "observe/progress.h"\n', 1),
        "src/text/a.h": ('#include "neighbour.h"\n', 1),
        "src/text/b.h": ('#include "unheard/of.h"\n', 1),
        "src/unheard/a.cpp": ("\n", 1),
        # Rooms of a folder.
        "src/text/message/a.cpp": ('\n#include "text/grammar/ok.h"\n', 2),
        "src/text/c.cpp": ('#include "text/tokenizer/ok.h"\n', 1),
        "src/text/cellar/a.cpp": ("\n", 1),
        "src/text/template/through.cpp": ('#include "text/tokenizer/through.h"\n', 1),
        "src/text/tokenizer/through.h": ('#include "text/message/ok.h"\n', 1),
        "src/engine/room.cpp": ('#include "text/grammar/ok.h"\n', 1),
        # Folders of use cases: the lower ones know nothing of the upper.
        "src/serving/a.cpp": ('#include "planning/memory_plan.h"\n', 1),
        "src/losses/a.cpp": ('#include "serving/serving.h"\n', 1),
        "src/planning/a.cpp": ('#include "host/sessions.h"\n', 1),
        "src/parity/a.cpp": ('#include "runs/run.h"\n', 1),
        "src/runs/a.cpp": ('#include "rl/settings.h"\n', 1),
        "src/host/a.cpp": ('#include "runs/run.h"\n', 1),
        "src/jobs/a.cpp": ('#include "engine/engine.h"\n', 1),
        "src/cli/a.cpp": ('#include "host/sessions.h"\n', 1),
        "src/kernels/planted/i.cu": ("float f(float x) { return expf(x); }\n", 1),
        "src/kernels/b.cpp": ("int x;\nauto y = _mm256_add_ps(a, b);\n", 2),
        "src/numerics/b.cpp": ("#include <immintrin.h>\n", 1),
        "src/base/thread_pool.cpp": ("#include <immintrin.h>\nvoid f() { _mm_pause(); }\n__m256 x;\n", 3),
        "src/kernels/c.cpp": ("float f(float x) { return std::exp(x); }\n", 1),
        "src/numerics/c.cpp": ("float f(float x) { return expf(x); }\n", 1),
        "src/model/c.cpp": ("#include <cmath>\ndouble f(double x) { return tanh(x); }\n", 2),
        "src/model/e.cpp": ('auto a = "//"; float b = std::exp(x);\n', 1),
        "src/train/c.cpp": ("double f(double x) { return std::pow (x, 2); }\n", 1),
        "src/model/d.cpp": ('#include "tensor/device_pointer.h"\n', 1),
        "src/host/d.cpp": ("#include <boost/asio.hpp>\n", 1),
        # Files that are included into others, with one of each rule.
        "src/kernels/planted/e.inl": ("int x;\nauto y = _mm256_add_ps(a, b);\n", 2),
        "src/kernels/planted/f.inl": ("float f(float x) { return std::exp(x); }\n", 1),
        "src/kernels/planted/g.inl": ('#include "model/model.h"\n', 1),
        "src/kernels/planted/h.inl": ("#include <vector>\n", 1),
        "src/kernels/planted/long.inl": ("\n" * 700, 700),
        "src/numerics/e.inc": ("\n__m512 x;\n", 2),
        "src/numerics/f.inc": ("float f(float x) { return __builtin_expf(x); }\n", 1),
        "src/engine/g.inc": ('#include "train/trainer.h"\n', 1),
        "src/numerics/long.inc": ("\n" * 700, 700),
        "src/model/unread.hpp": ("\n", 1),
        # Through the headers of others: each is allowed to whoever includes it, and not to the next one.
        "src/rl/through.cpp": ('\n#include "serving/with_engine.h"\n', 2),
        "src/api/through.cpp": ('#include "serving/with_boost.h"\n', 1),
        "src/serving/with_boost.h": ("#include <boost/asio.hpp>\n", 1),
        "src/train/through.cpp": ('#include "model/outer.h"\n', 1),
        "src/model/outer.h": ('#include "model/inner.inl"\n', 1),
        "src/model/inner.inl": ('#include "kernels/with_pointer.h"\n', 1),
        "src/text/through.h": ('#include "base/thread_pool.cpp"\n', 1),
        "src/tensor/through.h": ('#include "numerics/element.h"\n', 1),
        "src/model/sees.cpp": ('#include "numerics/isa/avx2.h"\n', 1),
        # A type of two files.
        "src/text/tokenizer/piece.h": ("namespace lockstep {\nstruct Piece {\n  int a;\n};\n}\n", 2),
        "src/cli/long.cpp": ("\n" * 601, 601),
        "tools/long.py": ("\n" * 700, 700),
        "tests/long.sh": ("\n" * 700, 700),
        "cmake/long.cmake": ("\n" * 700, 700),
    }
    clean = {
        "src/engine/ok.cpp": '#include "model/model.h"\n#include "base/error.h"\n#include <vector>\n',
        "src/numerics/isa/avx2.h": "#include <immintrin.h>\n__m256 f() { return _mm256_setzero_ps(); }\n",
        "src/kernels/ok.cpp": '#include <cmath>\n// std::exp(x) of libm\nauto a = std::sqrt(x) + std::fma(a, b, c);\n'
                              'auto e = V::exp(x) + numerics::log(y) + v.tanh() + exp_f32(z); f("std::exp(x)");\n',
        "src/kernels/ok_test.cpp": "double f(double x) { return std::exp(x); }\n",
        "src/tensor/ok.h": '#include "tensor/device_pointer.h"\n',
        "src/http/ok.cpp": '#include <boost/beast.hpp>\n#include "api/openai/routes.h"\n',
        "src/model/ok.cpp": 'auto a = "/*"; auto b = R"(\nstd::exp(x))"; /* std::exp(x)\n*/ char c = \'"\';\n'
                            'int d = 1\'000; // "\n',
        "src/serving/with_engine.h": '#include "engine/ok.h"\n',
        "src/engine/ok.h": "",
        "src/text/ok.h": "",
        # Types that are none of a namespace's own, or of another: inner ones, of unnamed namespaces, declared alone.
        "src/model/piece.h": "namespace lockstep {\nclass Piece final : public Base {\n  struct Inner {};\n};\nstruct Declared;\n}\n",
        "src/model/piece.cpp": "namespace lockstep {\nnamespace {\nstruct Piece {};\n}\nstruct Piece::Inner : A {};\nstruct Inner {};\n"
                               "void f() { struct Declared {}; }\n}\nnamespace other {\nstruct Piece {};\n}\n",
        "src/model/declared.h": "namespace lockstep {\nstruct Declared {};\n}\n",
        "src/text/tokenizer/ok.h": '#include "text/ok.h"\n',
        "src/text/message/ok.h": "",
        "src/text/grammar/ok.h": '#include "text/message/ok.h"\n#include "text/tokenizer/ok.h"\n#include "text/ok.h"\n',
        "src/text/template/ok_test.cpp": '#include "text/grammar/ok.h"\n',
        "src/rl/room.cpp": '#include "text/grammar/ok.h"\n',
        "src/api/ok.cpp": '#include "serving/with_engine.h"\n',
        "src/kernels/with_pointer.h": '#include "tensor/ok.h"\n',
        "src/kernels/ok/ok.inl": '#include "kernels/with_pointer.h"\nauto e = V::exp(x);\n',
        "src/numerics/element.h": '#include "numerics/bits.h"\n',
        "src/numerics/bits.h": '#include "base/error.h"\n',
        "src/cli/ok.cpp": "double f(double x) { return std::exp(x); }\n" + "\n" * 599,
    }
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in {**{n: t for n, (t, _) in planted.items()}, **clean}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        got = sorted(":".join(v.split(":")[:2]) for v in check_tree(root)[0])
    wanted = sorted(f"{name}:{line}" for name, (_, line) in planted.items())
    missed, surplus = sorted(set(wanted) - set(got)), [g for g in got if g not in wanted or got.count(g) > 1]
    for name in missed:
        print(f"self-test: missed the violation planted at {name}")
    for name in surplus:
        print(f"self-test: reported one that is none, or twice: {name}")
    page = (Path(__file__).resolve().parent.parent / "ARCHITECTURE.md").read_text()
    for change in (("| engine, checkpoint, text, model,", "| engine, model,"), ("| `store` |", "| `cellar` |")):
        if not check_table(page.replace(*change)) or check_table(page) or change[0] not in page:
            missed.append(f"ARCHITECTURE.md: {change[0]}")
    word = "FAIL" if missed or surplus else "PASS"
    print(f"{word} layers self-test: {len(wanted)} planted violations, {len(wanted) - len(missed)} found")
    return 1 if missed or surplus else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if sys.argv[1:]:
        print(f"check_layers.py: unknown argument '{sys.argv[1]}'; known is --self-test", file=sys.stderr)
        return 2
    root = Path(__file__).resolve().parent.parent
    violations, files = check_tree(root)
    violations += check_table((root / "ARCHITECTURE.md").read_text())
    for violation in violations:
        print(violation)
    print(f"{'FAIL' if violations else 'PASS'} layers: {files} files, {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())

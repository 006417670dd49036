#!/usr/bin/env python3
"""Measures the tree itself: lines by room, sizes of files, methods of classes, who sees the kernel table, the ways of a sample request and of a
training step.

    tools/house_numbers.py                 prints the tables
    tools/house_numbers.py --write         puts them into ARCHITECTURE.md, between the marks that stand there
    tools/house_numbers.py --check         prints what is above its limit (MOST_METHODS, MOST_COLUMNS, ...); exit code 1 where something is
    tools/house_numbers.py --self-test     whether --check finds a planted excess of each limit

Lines are those that are not empty. A method is what a class or struct declares with a list of parameters, constructors, destructors,
operators and friends left out; overloads count each. A file sees a header that it includes, through whatever other header; tests are not
counted there.

The way of a sample request is the files that take the request, or a part of its answer, and hand it on: from the socket to Engine::submit, and from
the engine's tokens to the socket. That of a training step: from the socket, or from the command, to the RankTrainer that has the batch computed, and back
to the socket, or to metrics and checkpoint. A header and its .cpp are one, and so is a file that is passed in both directions. What only helps one of them
(to read a number, check a key, count, log) is not on the way; nor is who gives them turns and sees no request, as the executor, nor what the engine or a
trainer does in a step. The ways are written down here, each file with the name by which others on the way hand on to it; a file that is gone, or a name
that is not in it or that no other file of the way has, is an error.

Hops are how often a request, or its answer, goes from one file of the way to the next, there and back. A file that is asked and gives its result back to who
asked (a decoder, a detokenizer) is on the way and no hop. CHAINS has the files in their order; of two neighbours one must have the other's name.
"""
import argparse
import re
import sys
from pathlib import Path
from statistics import median

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import check_layers  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- tools/house_numbers.py: begin -->", "<!-- tools/house_numbers.py: end -->"
TABLE = "kernels/table.h"

WIRE = [("http/connection", "Connection"), ("http/transport", "write"), ("http/request_reader", "take"), ("api/routes", "handle"), ("http/outbox", "HttpResponder"),
        ("http/answer_sender", "AnswerSender")]
TRAINING_WIRE = [*WIRE, ("api/tinker/training_routes", "TrainingCall"), ("api/request_pool", "RequestPool")]
COMPLETION = [("serving/completion", "start_completion"), ("serving/serving", "generate_all"),
              ("serving/service_turns", "post"), ("engine/engine", "submit"), ("serving/text_stream", "TextStream"),
              ("text/tokenizer/detokenizer", "Detokenizer"), ("serving/stop_strings", "StopSearch")]
WAYS = {
    "OpenAI": [*WIRE, ("api/openai/openai_api", "handler"), ("api/openai/completion_request", "decode_completion"), ("api/openai/sampling_fields", "order_of"),
               ("api/openai/completion_answer", "answer_completion"), ("api/openai/answer_run", "AnswerRun"), *COMPLETION,
               ("api/openai/answer_writer", "append_event")],
    "Fireworks": [*TRAINING_WIRE, ("api/fireworks/completion_routes", "TrainingCall"), ("api/fireworks/completion_request", "decode_fireworks_completion"),
                  ("api/openai/sampling_fields", "order_of"), ("api/openai/answer_run", "AnswerRun"), *COMPLETION,
                  ("api/fireworks/completion_writer", "FireworksWriter")],
    "tinker": [*TRAINING_WIRE, ("api/tinker/sampling_routes", "TrainingCall"), ("host/training_sampling", "SamplingRequest"), *COMPLETION,
               ("api/tinker/proto_codec", "encode_sample"), ("host/futures", "futures"), ("api/tinker/session_routes", "wait")],
}
TRAINER = [("trained/full_model", "TrainedModel"), ("train/trainer", "Trainer"), ("train/rank_trainer", "RankTrainer")]
STEP_WAYS = {
    "tinker": [*TRAINING_WIRE, ("api/tinker/model_routes", "TrainingCall"), ("api/tinker/proto_batch", "decode_batch"),
               ("host/model_operations", "forward_backward"), ("host/model_lanes", "ModelLanes"), ("host/training_queue", "TrainingQueue"),
               ("host/operation", "BatchOperation"), ("host/loss_inputs", "prepare_batch"), *TRAINER, ("train/open_batch", "OpenBatch"),
               ("api/tinker/proto_codec", "encode_training"), ("host/futures", "futures"), ("api/tinker/session_routes", "wait")],
    "train sft": [("cli/train_sft", "run_sft_job"), ("jobs/sft_job", "run_sft_job"), ("runs/sft_run", "run_sft"), ("runs/run", "RunWork"), ("runs/sft_data", "SftSource"),
                  ("runs/local_trainer", "LocalTrainer"), *TRAINER],
}
IN, OUT = ["http/connection", "api/routes"], ["http/outbox", "http/connection", "http/answer_sender", "http/transport"]
POOLED = [*IN, "api/tinker/training_routes", "api/request_pool", "api/tinker/training_routes"]
DOWN, UP = ["serving/completion", "serving/serving", "serving/service_turns", "serving/serving", "engine/engine"], ["serving/serving", "serving/completion"]
TRAINED = ["trained/full_model", "train/trainer", "train/rank_trainer", "train/trainer", "trained/full_model"]
CHAINS = {
    "OpenAI": [*IN, "api/openai/openai_api", "api/openai/completion_answer", "api/openai/answer_run", *DOWN, *UP, "api/openai/answer_run", *OUT],
    "Fireworks": [*POOLED, "api/fireworks/completion_routes", "api/openai/answer_run", *DOWN, *UP, "api/openai/answer_run", *OUT],
    "tinker": [*POOLED, "api/tinker/sampling_routes", "host/training_sampling", *DOWN, *UP, "host/training_sampling", "host/futures", "api/tinker/session_routes", *OUT],
}
STEP_CHAINS = {
    "tinker": [*POOLED, "api/tinker/model_routes", "host/model_operations", "host/model_lanes", "host/training_queue", "host/operation", *TRAINED, "host/operation",
               "host/futures", "api/tinker/session_routes", *OUT],
    "train sft": ["cli/train_sft", "jobs/sft_job", "runs/sft_run", "runs/run", "runs/sft_run", "runs/local_trainer", *TRAINED, "runs/local_trainer", "runs/sft_run", "runs/run"],
}
INTERFACES = {"HttpResponder": "Responder|out", "handle": "Routes", "TrainingQueue": "queue"}  # by which others know a name
MOST_METHODS, MOST_HEADER_LINES = 25, 120
MOST_SEE_TABLE, MOST_WAY, MOST_STEP_WAY, MOST_HOPS = 60, 20, 25, 20
MOST_LINES = {"model/context.cpp": 199}
MOST_FAMILY_LINES = 120
MOST_COLUMNS = 160  # of a line with a comment, which clang-format (ColumnLimit) leaves as it is
# Folders whose headers may be longer: they hold bodies that kernels inline, and no other folder includes those.
BODIES = ("kernels", "numerics")

CLASS = re.compile(r"\b(?:class|struct)\s+(?:alignas\([^)]*\)\s*)?(\w+)(?:\s+final)?\s*(?::[^;{}()]*)?\{")
METHOD = re.compile(r"(?:^|[\s*&>])(~?\w+|operator\s*[^\s(]+)\s*\(")


def is_test(name):
    return name.endswith("_test.cpp") or "_test_tools" in name


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def statements(body):
    """The declarations at the top level of a class body: text up to `;` or to the block that follows it."""
    depth = parentheses = 0
    text = ""
    for c in body:
        if c == "{":
            if depth == 0 and not parentheses:
                yield text
                text = ""
            depth += 1
        elif c == "}":
            depth -= 1
        elif depth == 0:
            parentheses += (c == "(") - (c == ")")
            if c == ";" and not parentheses:
                yield text
                text = ""
            elif c == ":" and re.search(r"\b(public|private|protected)\s*$", text):
                text = ""
            else:
                text += c


def methods(code):
    """{class: how many methods it declares} of one file's code, without comments and strings."""
    found = {}
    for match in CLASS.finditer(code):
        depth, at = 1, match.end()
        while at < len(code) and depth:
            depth += (code[at] == "{") - (code[at] == "}")
            at += 1
        count = 0
        for statement in statements(code[match.end() : at - 1]):
            statement = re.sub(r"\s+", " ", statement).strip()
            head = statement.split("=")[0] if "operator" not in statement else statement
            if re.match(r"(using|typedef|friend|static_assert|enum|class|struct|union|template <[^>]*> (class|struct|using))\b", statement):
                continue
            if re.match(r"std ?:: ?function|std ?:: ?packaged_task", statement):
                head = re.sub(r"<.*>", "", head)
            name = METHOD.search(head)
            if name and name[1].lstrip("~") != match[1] and not name[1].startswith("operator") and name[1] not in ("decltype", "alignas", "noexcept", "explicit"):
                count += 1
        found[match[1]] = max(found.get(match[1], 0), count)
    return found


def wide_comments(text):
    """(number, characters) of each line of C++ that is too long and has a comment, or a part of one."""
    wide = {n: len(line) for n, line in enumerate(text.split("\n"), 1) if len(line) > MOST_COLUMNS}
    if not wide:
        return []
    found = set()
    for token in check_layers.TOKEN.finditer(text):
        if token[0].startswith(("//", "/*")):
            first = text.count("\n", 0, token.start()) + 1
            found.update(range(first, first + token[0].count("\n") + 1))
    return [(n, columns) for n, columns in wide.items() if n in found]


def check_way(root, wire, way, chain):
    """Whether each file of the way is there, others of the way hand on to it by that name, and the chain goes over files of the way that know each other."""
    texts = {file: "".join(path.read_text() for end in (".h", ".cpp") if (path := root / "src" / (file + end)).exists()) for file, _ in way}
    for file, name in way:
        holders = [other for other, text in texts.items() if re.search(rf"\b{name}_?\b", text)]
        if file not in holders or len(holders) < 2:
            raise SystemExit(f"house_numbers: {file} is on a way of {wire}, but '{name}' is in {', '.join(holders) or 'no file of it'}; "
                             "WAYS and STEP_WAYS must follow the tree")
    names = dict(way)
    if strangers := set(chain) - set(names):
        raise SystemExit(f"house_numbers: the chain of {wire} goes over {', '.join(sorted(strangers))}, which its way does not have")
    knows = lambda one, other: re.search(rf"\b({names[other]}|{INTERFACES.get(names[other], names[other])})_?\b", texts[one])  # noqa: E731
    for one, other in zip(chain, chain[1:]):
        if not knows(one, other) and not knows(other, one):
            raise SystemExit(f"house_numbers: {wire}: neither '{names[other]}' is in {one} nor '{names[one]}' in {other}; CHAINS must follow the tree")


def measure(root):
    for ways, chains in ((WAYS, CHAINS), (STEP_WAYS, STEP_CHAINS)):
        for wire, way in ways.items():
            check_way(root, wire, way, chains[wire])
    tree = check_layers.Tree(root)
    lines = {name: sum(1 for line in (root / "src" / name).read_text(errors="replace").split("\n") if line.strip()) for name in tree.lines}
    rooms = {}
    for name, count in lines.items():
        rooms.setdefault(name.split("/")[0], {"code": [], "tests": []})["tests" if is_test(name) else "code"].append(count)
    classes = []
    for name, code in tree.lines.items():
        if not is_test(name):
            classes += [(count, kind, name) for kind, count in methods("\n".join(code)).items()]
    classes.sort(key=lambda row: (-row[0], row[1]))
    units = [name for name in tree.lines if name.endswith(".cpp") and not is_test(name)]
    sees = [name for name in units if TABLE in tree.closure(name)]
    outside = [name for name in sees if not name.startswith("kernels/")]
    ports = [(name, target) for name, includes in tree.includes.items() if name.split("/")[0] not in BODIES and not is_test(name)
             for _, quoted, target in includes if quoted and target.split("/")[0] in BODIES]
    files = [path for folder in ("src", "tests", "bench") for path in sorted((root / folder).rglob("*")) if path.suffix in check_layers.CODE and path.is_file()]
    wide = [(f"{path.relative_to(root)}:{n}", columns) for path in files for n, columns in wide_comments(path.read_text(errors="replace"))]
    return {"wide": wide, "ports": ports, "lines": lines, "rooms": rooms, "classes": classes, "units": units, "sees": sees, "outside": outside,
            "ways": {wire: len(dict(way)) for wire, way in WAYS.items()}, "step_ways": {start: len(dict(way)) for start, way in STEP_WAYS.items()},
            "hops": {wire: len(chain) - 1 for wire, chain in CHAINS.items()}, "step_hops": {start: len(chain) - 1 for start, chain in STEP_CHAINS.items()}}


def tables(numbers):
    out = ["| folder | files | lines | median file | 90th percentile | largest | lines of tests |", "|---|---|---|---|---|---|---|"]
    order = [row for row in check_layers.LAYERS if "/" not in row]
    for folder in [*order, *sorted(set(numbers["rooms"]) - set(order))]:
        if not (room := numbers["rooms"].get(folder)) or not room["code"]:
            continue
        code = room["code"]
        out.append(f"| `{folder}` | {len(code)} | {sum(code)} | {median(code):.0f} | {percentile(code, 0.9)} | {max(code)} | {sum(room['tests'])} |")
    code = [count for room in numbers["rooms"].values() for count in room["code"]]
    tests = sum(sum(room["tests"]) for room in numbers["rooms"].values())
    out.append(f"| all | {len(code)} | {sum(code)} | {median(code):.0f} | {percentile(code, 0.9)} | {max(code)} | {tests} |")
    out += ["", "| what | figure |", "|---|---|"]
    out += [f"| methods of `{kind}` (`{name}`) | {count} |" for count, kind, name in numbers["classes"][:5]]
    large = [f"`{kind}` {count}" for count, kind, _ in numbers["classes"] if count > MOST_METHODS]
    out.append(f"| classes of more than {MOST_METHODS} methods | {len(large)}{': ' if large else ''}{', '.join(large)} |")
    long = sorted(((count, name) for name, count in numbers["lines"].items() if name.endswith(".h") and not is_test(name) and count > MOST_HEADER_LINES), reverse=True)
    out.append(f"| headers of more than {MOST_HEADER_LINES} lines | {len(long)}: {', '.join(f'`{name}` {count}' for count, name in long)} |")
    out += [f"| files on the way of a sample request, {wire} | {count}, in {numbers['hops'][wire]} hops |" for wire, count in numbers["ways"].items()]
    out += [f"| files on the way of a training step, {start} | {count}, in {numbers['step_hops'][start]} hops |" for start, count in numbers["step_ways"].items()]
    out.append(f"| .cpp files that see `{TABLE}` | {len(numbers['sees'])} of {len(numbers['units'])}, {len(numbers['outside'])} of them outside `kernels/` |")
    return "\n".join(out)


def excesses(numbers):
    """What is above its limit, a sentence each."""
    lines = {name: count for name, count in numbers["lines"].items() if not is_test(name)}
    found = [f"class {kind} ({name}) has {count} methods, at most {MOST_METHODS}" for count, kind, name in numbers["classes"] if count > MOST_METHODS]
    if len(numbers["sees"]) > MOST_SEE_TABLE:
        found.append(f"{len(numbers['sees'])} .cpp files see {TABLE}, at most {MOST_SEE_TABLE}")
    for ways, most, what in ((numbers["ways"], MOST_WAY, "a sample request"), (numbers["step_ways"], MOST_STEP_WAY, "a training step")):
        found += [f"{count} files are on the way of {what}, {name}, at most {most}" for name, count in ways.items() if count > most]
    found += [f"a sample request, {name}, takes {count} hops, at most {MOST_HOPS}" for name, count in numbers["hops"].items() if count > MOST_HOPS]
    for name, count in lines.items():
        room = name.split("/")[0]
        most = MOST_LINES.get(name, MOST_FAMILY_LINES if name.startswith("model/archs/") else None)
        if name.endswith(".h") and room not in BODIES:
            most = MOST_HEADER_LINES
        if most is not None and count > most:
            found.append(f"{name} has {count} lines, at most {most}")
    found += [f"{target} has {lines[target]} lines, and {name} includes it, which is of another folder; at most {MOST_HEADER_LINES}"
              for name, target in numbers["ports"] if lines.get(target, 0) > MOST_HEADER_LINES]
    found += [f"{place} is a comment's line of {columns} characters, at most {MOST_COLUMNS}" for place, columns in numbers["wide"]]
    return found


def unexplained(classes, glossary):
    """Types called Model that the glossary does not tell apart."""
    return [f"{kind} ({name}) is a type called Model, and docs/glossary.md does not say which" for _, kind, name in classes
            if kind.endswith("Model") and f"`{kind}`" not in glossary]


def self_test():
    many = [f"planted/{i}.cpp" for i in range(MOST_SEE_TABLE + 1)]
    planted = {
        "class Planted": {"classes": [(MOST_METHODS + 1, "Planted", "a.h")]},
        "see kernels/table.h": {"sees": many},
        "a sample request, OpenAI": {"ways": {"OpenAI": MOST_WAY + 1}},
        "a training step, tinker": {"step_ways": {"tinker": MOST_STEP_WAY + 1}},
        "takes 21 hops": {"hops": {"OpenAI": MOST_HOPS + 1}},
        "model/context.cpp": {"lines": {"model/context.cpp": 200}},
        "model/archs/planted.cpp": {"lines": {"model/archs/planted.cpp": MOST_FAMILY_LINES + 1}},
        "host/planted.h": {"lines": {"host/planted.h": MOST_HEADER_LINES + 1, "host/planted.cpp": 500, "host/planted_test.cpp": 500}},
        "model/planted.h": {"lines": {"model/planted.h": MOST_HEADER_LINES + 1, "kernels/planted.h": MOST_HEADER_LINES + 1}},
    }
    planted["numerics/planted.h"] = {"ports": [("train/planted.cpp", "numerics/planted.h")], "lines": {"numerics/planted.h": MOST_HEADER_LINES + 1, "train/planted.cpp": 1}}
    planted["src/planted.h:3"] = {"wide": [("src/planted.h:3", MOST_COLUMNS + 1)]}
    none = {"wide": [], "ports": [("train/planted.cpp", "numerics/short.h")], "classes": [], "sees": many[1:], "ways": {"OpenAI": MOST_WAY}, "step_ways": {}, "hops": {"OpenAI": MOST_HOPS}, "lines": {"model/context.cpp": 199}}
    wrong = ["no excess"] if excesses(none) else []
    wrong += [name for name, change in planted.items() if len(found := excesses(none | change)) != 1 or name not in found[0]]
    # A comment that is too long, alone, behind code and over lines; none in a string, nor one that just fits.
    long, fits = "x" * MOST_COLUMNS, "x" * (MOST_COLUMNS - 3)
    wrong += [text[:20] for text, lines in ((f"// {long}", [1]), (f"int a;\nint b;  // {long}", [2]), (f"/* a\n{long}x */", [2]), (f'auto s = "// {long}";', []), (f"// {fits}", []))
              if [n for n, _ in wide_comments(text)] != lines]
    wrong += ["PlantedModel"] if len(unexplained([(1, "PlantedModel", "a.h"), (1, "Model", "b.h")], "`Model`")) != 1 else []
    print(f"{'FAIL' if wrong else 'PASS'} self-test {', '.join(wrong)}".rstrip())
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help="put the tables into ARCHITECTURE.md")
    parser.add_argument("--check", action="store_true", help="say what is above its limit")
    parser.add_argument("--self-test", action="store_true", help="plant an excess of each limit")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout (default: this one)")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    numbers = measure(arguments.root)
    if arguments.check:
        found = excesses(numbers) + unexplained(numbers["classes"], (arguments.root / "docs/glossary.md").read_text())
        print("\n".join([*found, f"{'FAIL' if found else 'PASS'} house"]))
        return 1 if found else 0
    text = tables(numbers)
    if not arguments.write:
        print(text)
        return 0
    page = arguments.root / "ARCHITECTURE.md"
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        print(f"{page.name} has no lines '{BEGIN}' and '{END}'", file=sys.stderr)
        return 1
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

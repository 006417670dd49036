"""Compiles (syntax only) the lines of use in headers' first comments: `//   CODE` before #pragma once, with three blanks.

Each stands in a function of its own, whose parameters are what the line takes for granted; GIVEN lists them, and which headers are held
to it. `...` stands for anything and is left out. A header whose lines are no code, or take a whole program for granted, is not listed.
"""
import re
import shutil
import subprocess

from harness import ROOT, TMP, Skip, check

LEARNS = "const std::vector<TrainSequence>& data, const LossOptions& loss, const AdamParameters& adam"
GIVEN = {
    "base/bounded_json.h": "const std::string& body",
    "base/entropy.h": "std::optional<std::uint64_t> given",
    "base/error.h": "double t",
    "base/fair_shares.h": "double now, double seconds",
    "base/folder_lock.h": "const std::filesystem::path& runs",
    "base/log.h": "const std::string& path",
    "base/signals.h": "void (*step)()",
    "base/thread_pool.h": "ThreadPool& pool, std::int64_t rows",
    "benchmark/attention.h": "",
    "benchmark/counters.h": "const OpenedModel& opened",
    "benchmark/kernel_groups.h": "",
    "benchmark/model_benchmark.h": "",
    "benchmark/roofline.h": "",
    "benchmark/scoring.h": "",
    "base/byte_file.h": "char* buffer",
    "base/folder_files.h": "std::string text",
    "checkpoint/gguf_config.h": "const GgufFile& file",
    "checkpoint/gguf_file.h": "std::vector<float>& values",
    "checkpoint/gguf_model.h": "const std::filesystem::path& path",
    "checkpoint/gguf_tokenizer.h": "const GgufFile& file",
    "checkpoint/gguf_types.h": "const std::uint8_t* bytes, float* values, std::int64_t blocks",
    "checkpoint/json_file.h": "const std::filesystem::path& folder",
    "checkpoint/model_files.h": "const std::filesystem::path& folder, const std::string& name, std::vector<float>& values",
    "checkpoint/model_folder.h": "",
    "checkpoint/safetensors.h": "std::vector<float>& values",
    "checkpoint/safetensors_header.h": "const std::string& text",
    "cli/command_line.h": "const std::vector<std::string>& arguments, const OptionRows& rows",
    "cli/option_help.h": "const CommandAbout& about, const OptionRows& rows",
    "cli/option_rows.h": "OptionRows& rows, const std::string& text",
    "cli/options.h": "std::int64_t max_tokens, std::string prompt, const std::vector<std::string>& arguments",
    "engine/engine.h": "Runtime& runtime, std::shared_ptr<const WeightSet> weights",
    "kernels/backend.h": "const View& y, const View& a, const View& b",
    "kernels/kernel_work.h": "const View& y, const View& x, const PackedWeight& w",
    "model/config_keys.h": "const Json& json",
    "model/config_reader.h": "const Json& json",
    "model/context.h": "Context& ctx, const Tensor& x, const Tensor& a, const Tensor& b, std::int64_t n",
    "model/model.h": "const Json& config_json",
    "model/operations/segment.h": "Context& ctx, Tensor x, Tensor (*layer)(Context&, const Tensor&)",
    "model/runtime.h": "const BackendOptions& backend_options, const Json& config, std::int64_t max_positions",
    "numerics/profile.h": "",
    "numerics/flop.h": "",
    "observe/bounded_log.h": "const std::filesystem::path& run, std::int64_t checkpoint_step",
    "observe/metrics_log.h": "const std::filesystem::path& run, std::int64_t checkpoint_step",
    "observe/progress.h": "std::int64_t steps, std::int64_t tokens_of_step",
    "observe/prometheus.h": "std::string& body",
    "observe/trace.h": "void (*work)()",
    "parallel/layout.h": "",
    "parallel/thread_ranks.h": "const RankLayout& layout",
    "rl/countdown.h": "std::uint64_t seed, std::uint64_t index",
    "rl/environment.h": "std::uint64_t seed, const std::string& answer",
    "rl/advantages/advantages.h": "",
    "rl/algorithms/algorithms.h": "RlSettings& settings, const std::set<std::string_view>& options",
    "rl/dozen.h": "std::uint64_t seed, std::uint64_t index",
    "rl/lockbox.h": "std::uint64_t seed, std::uint64_t index",
    "rl/settings.h": "",
    "rl/trajectory/policy_datum.h": "const Rollout& rollout",
    "rl/trajectory/reference.h": "const Environment& environment, const Problem& problem, const Tokenizer& tokenizer, std::int32_t end",
    "rl/step_batch.h": "const Environment& environment, RolloutSource& source, const RlSettings& settings, std::int64_t number, TrainerPort& trainer",
    "runs/policy_loss.h": "",
    "losses/custom_loss.h": "const nlohmann::ordered_json& inputs, const nlohmann::ordered_json& graph, const std::vector<float>& logprobs, "
                                         "const std::vector<std::int64_t>& shape, const TrainingDatum& datum",
    "serving/conversion.h": "",
    "serving/loading.h": "",
    "planning/memory_plan.h": "",
    "base/stop_token.h": "void (*step)()",
    "jobs/rl_job.h": "",
    "jobs/sft_job.h": "",
    "runs/run.h": "const StopSource& source, RunWork& work",
    "serving/serving.h": "const RuntimeSettings& settings, const Request& request, GenerationService::OnToken on_token, GenerationService::OnDone on_done",
    "store/database.h": "",
    "tensor/device.h": "std::int64_t rows, std::int64_t cols",
    "tensor/file_memory.h": "std::size_t bytes",
    "tensor/memory_pool.h": "std::size_t bytes",
    "text/tokenizer/tokenizer.h": "",
    "text/tokenizer/vocabulary.h": "",
    "train/adapter_trainer.h": f"Runtime& runtime, std::shared_ptr<const WeightSet> weights, std::shared_ptr<const AdapterLayout> layout, {LEARNS}, Request& request",
    "train/losses.h": "const std::vector<TrainSequence>& data, std::int64_t vocabulary",
    "train/trainer.h": f"Runtime& runtime, const WeightImages& images, {LEARNS}, Engine& engine",
}  # fmt: skip
# What lines use beside their own header.
BESIDE = ["base/signals.h", "engine/engine.h", "kernels/launch.h", "serving/loading.h"]


def usage_of(text):
    """The lines of use in a header's text, as statements."""
    lines = re.findall(r"^//   (.*)$", text.split("#pragma once")[0], re.M)
    return [re.sub(r"\s*\.\.\.(?:\w+\.\.\.)?;?", " ", line.split("  //")[0]) for line in lines]


def program(usages):
    """One function a header; #line leads an error back to the header."""
    parts = ["#include <filesystem>", "#include <optional>", *(f'#include "{header}"' for header in [*usages, *BESIDE]), "namespace lockstep {"]
    for number, (header, lines) in enumerate(usages.items()):
        parts += [f"void use_{number}({GIVEN[header]}) {{", f'#line 1 "the line of use in src/{header}"', *lines, ";", "}"]
    return "\n".join([*parts, "}  // namespace lockstep", ""])


def compiled(text):
    compiler = shutil.which("c++") or shutil.which("g++")
    if not compiler:
        raise Skip("no C++ compiler")
    source = TMP / "usage_lines.cpp"
    source.write_text(text)
    command = [compiler, "-std=c++20", "-fsyntax-only", "-w", "-mavx2", "-mfma", "-mf16c", f"-I{ROOT / 'src'}", "-DTOML_HEADER_ONLY=0", str(source)]
    return subprocess.run(command, capture_output=True, text=True)


with check("lines-of-use-compile"):
    usages = {header: usage_of((ROOT / "src" / header).read_text()) for header in GIVEN}
    assert all(usages.values()), f"without a line of use: {[header for header, lines in usages.items() if not lines]}"
    done = compiled(program(usages))
    assert done.returncode == 0, "\n".join(line for line in done.stderr.splitlines() if "error" in line)[:3000]

with check("control"):
    # A line that names what its header has not.
    false = usage_of("//   Device device({.backend = BackendKind::cpu, .threads = 2});\n#pragma once\n")
    done = compiled(program({"tensor/device.h": false}))
    assert done.returncode != 0 and "the line of use in src/tensor/device.h" in done.stderr, done.stderr[:1000]


# --- every other header: a call of what it declares has as many arguments as that takes

def within(text, at):
    """What stands in the brackets that open at `at`; None: they do not close."""
    depth, quoted = 0, ""
    for i in range(at, len(text)):
        c = text[i]
        if quoted:
            quoted = "" if c == quoted and text[i - 1] != "\\" else quoted
        elif c == '"':
            quoted = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0:
                return text[at + 1 : i]
    return None


def parts(text):
    """Split at the commas that stand in no brackets and no text. (<> are brackets behind a name, of a template.)"""
    out, depth, quoted = [""], 0, ""
    for i, c in enumerate(text):
        if quoted:
            quoted = "" if c == quoted and text[i - 1] != "\\" else quoted
        elif c == '"':
            quoted = c
        elif c in "([{" or (c == "<" and i > 0 and (text[i - 1].isalnum() or text[i - 1] == "_")):
            depth += 1
        elif c in ")]}" or (c == ">" and depth > 0 and text[i - 1] not in "- "):
            depth -= 1
        if c == "," and depth == 0 and not quoted:
            out.append("")
        else:
            out[-1] += c
    return [part for part in out if part.strip()]


DECLARED = re.compile(r"^[ \t]*(?:(?!(?:return|else|if|for|while|throw|case|fail)\b)[\w:<>,&*\[\] ]*?[ &*])?~?(\w+)\(", re.M)


def counts(code):
    """name -> {(fewest, most arguments)}"""
    found = {}
    for declared in DECLARED.finditer(code):
        inside = within(code, declared.end() - 1)
        if inside is not None:
            parameters = parts(inside)
            found.setdefault(declared[1], set()).add((sum("=" not in p for p in parameters), len(parameters)))
    return found


def wrong_counts(text):
    """Calls in the lines of use that give another number of arguments than the header's own functions take."""
    known = counts(re.sub(r"//[^\n]*", "", text.split("#pragma once")[1]))
    wrong = []
    for line in re.findall(r"^//   (.*)$", text.split("#pragma once")[0], re.M):
        line = line.split("  //")[0]
        for call in re.finditer(r"(?:\b([A-Z]\w*) )?\b(\w+)\(", line):
            name, inside = call[1] or call[2], within(line, call.end() - 1)  # `Box box(2)` calls Box
            if name not in known or inside is None or "..." in inside:
                continue
            given = len(parts(inside))
            if not any(fewest <= given <= most for fewest, most in known[name]):
                wrong.append(f"{name} with {given} arguments, it takes {sorted(known[name])}")
    return wrong


with check("calls-have-their-arguments"):
    headers = {path: path.read_text() for path in sorted((ROOT / "src").rglob("*.h"))}
    wrong = [f"src/{path.relative_to(ROOT / 'src')}: {one}" for path, text in headers.items() if "#pragma once" in text for one in wrong_counts(text)]
    assert not wrong, "\n".join([f"{len(wrong)} lines of use are false", *wrong])
    header = "//   Box box(2); box.put(1, {3, 4}); box.get(); fill(box, \"a, b\");\n#pragma once\nclass Box {\n public:\n  explicit Box(int size);\n  void put(int at, const Pair<int, int>& what{});\n  int get(int at = 0) const;\n};\nvoid fill(Box& box,\n          const std::string& text);\n"
    assert wrong_counts(header) == []
    for old, new, name in (("box(2)", "box(2, 3)", "Box"), ("put(1, {3, 4})", "put({3, 4})", "put"), ("get()", "get(1, 2)", "get"), ("fill(box, ", "fill(", "fill")):
        assert [one.split()[0] for one in wrong_counts(header.replace(old, new))] == [name], new

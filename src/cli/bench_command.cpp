// `lockstep bench gemm|attention|memory|arithmetic|roofline|prefill|decode|train|rl|prefix|score|counters|context|serve`: one row per case, as a table
// or as JSON lines. The timed code is in benchmark/.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/signals.h"
#include "base/thread_pool.h"
#include "benchmark/arithmetic.h"
#include "benchmark/attention.h"
#include "benchmark/counters.h"
#include "benchmark/gemm.h"
#include "benchmark/model_benchmark.h"
#include "benchmark/scoring.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/profile_options.h"
#include "cli/roofline.h"
#include "parity/machine.h"

namespace lockstep {

namespace {
// "1536x576" -> outputs, inputs.
std::pair<std::int64_t, std::int64_t> shape_of(const std::string& text) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 20;
  std::int64_t n = 0, k = 0;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, n);
  const bool crossed = first.ec == std::errc() && first.ptr != end && *first.ptr == 'x';
  const auto second = crossed ? std::from_chars(first.ptr + 1, end, k) : first;
  if (!crossed || second.ec != std::errc() || second.ptr != end || n < 1 || k < 1 || n > kLargest || k > kLargest || n * k > (std::int64_t{1} << 30))
    throw UsageError(fmt::format("--shape is '{}', allowed is OUTPUTSxINPUTS such as 1536x576, at most 2^30 weights", text.substr(0, 60)));
  return {n, k};
}

nlohmann::ordered_json seconds_json(const Timing& t) { return {{"median", t.median}, {"least", t.least}, {"most", t.most}}; }

int bench_gemm(const Arguments& arguments) {
  std::vector<std::string> shapes;
  std::optional<std::vector<std::int32_t>> rows;
  std::string weights = "f32", order = "contract";
  RuntimeSettings machine;
  TimeBudget time{0.5, interrupt_token()};
  std::int64_t leaves = 8, cold_megabytes = 0;
  bool json = false;
  OptionTable table("bench gemm", "Times linear layers y = x W^T: the median of repeated runs, after one that is not counted.",
                    {"lockstep bench gemm", "lockstep bench gemm --shape 4096x4096 --rows 1,8,64 --weights bf16 --json"});
  table.texts("shape", &shapes, "NxK", "Outputs x inputs of a weight (default 1536x576 576x1536 4096x4096)");
  table.integers("rows", &rows, "M,M,...", "Rows of x (default 1,4,16,64,512)");
  table.choice("weights", &weights, {"f32", "bf16", "int8", "int4"}, "Number format of the weight");
  table.integer("threads", &machine.threads, 0, 4096, "N", "Threads, 0: all processors");
  table.choice("isa", &machine.isa, instruction_set_names(), "Instruction set");
  table.integer("leaves", &leaves, 1, 8, "N", "Most leaves of a sum; 8 is the contract's, 1 shows what its tree costs");
  table.choice("order", &order, {"contract", "free"}, "Order of the sums; free: a kernel that adds in whatever order suits the tile (fp32)");
  table.integer("cold-megabytes", &cold_megabytes, 0, 65536, "MB",
                "Take turns with copies of the weight of this size in all, so that no cache holds it; 0: one weight");
  table.number("seconds", &time.seconds, 0.001, 3600, "S", "Time for a case");
  add_json_option(table, &json, "Print one JSON object a case and nothing else");
  if (!table.parse(arguments)) return kExitOk;
  if (leaves & (leaves - 1)) throw UsageError(fmt::format("--leaves is {}, allowed are 1, 2, 4, 8", leaves));
  if (shapes.empty()) shapes = {"1536x576", "576x1536", "4096x4096"};
  std::vector<std::pair<std::int64_t, std::int64_t>> sizes;
  for (const std::string& shape : shapes) sizes.push_back(shape_of(shape));
  const std::vector<std::int32_t> row_counts = rows.value_or(std::vector<std::int32_t>{1, 4, 16, 64, 512});
  for (const std::int32_t m : row_counts)
    if (m < 1 || m > (1 << 20)) throw UsageError(fmt::format("--rows contains {}, allowed is 1 to {}", m, 1 << 20));

  install_interrupt_handlers();
  if (!json) std::printf("%8s %8s %8s %6s %12s %12s %10s %10s\n", "rows", "outputs", "inputs", "weight", "median us", "least us", "GFLOP/s", "GB/s");
  for (const auto& [n, k] : sizes)
    for (const std::int32_t m : row_counts) {
      const GemmTiming t = time_gemm({.rows = m,
                                      .outputs = n,
                                      .inputs = k,
                                      .bf16_weights = weights == "bf16",
                                      .weight_bits = weights == "int8"   ? 8
                                                     : weights == "int4" ? 4
                                                                         : 0,
                                      .maximum_leaves = static_cast<int>(leaves),
                                      .free_order = order == "free"},
                                     backend_options(machine), time, cold_megabytes << 20);
      if (json) {
        const nlohmann::ordered_json line{{"rows", m},
                                          {"outputs", n},
                                          {"inputs", k},
                                          {"weights", weights},
                                          {"leaves", leaves},
                                          {"order", order},
                                          {"accumulators", t.accumulators},
                                          {"part_inputs", t.part_inputs},
                                          {"seconds", seconds_json(t.time)},
                                          {"runs", t.time.runs},
                                          {"gigaflops", t.gigaflops},
                                          {"gigabytes_per_second", t.gigabytes_per_second}};
        std::printf("%s\n", line.dump().c_str());
      } else {
        std::printf("%8d %8lld %8lld %6s %12.1f %12.1f %10.1f %10.1f\n", m, static_cast<long long>(n), static_cast<long long>(k), weights.c_str(),
                    t.time.median * 1e6, t.time.least * 1e6, t.gigaflops, t.gigabytes_per_second);
      }
      std::fflush(stdout);
    }
  return kExitOk;
}

int bench_attention(const Arguments& arguments) {
  AttentionCase shape;
  std::optional<std::vector<std::int32_t>> contexts;
  std::string cache = "f32";
  RuntimeSettings machine;
  TimeBudget time{0.5, interrupt_token()};
  bool json = false;
  OptionTable table("bench attention", "Times attention alone, of one row at the end of a context (decoding) and of all its rows (prefill).",
                    {"lockstep bench attention", "lockstep bench attention --context 4096 --heads 32 --kv-heads 8 --size 128 --cache bf16"});
  table.integers("context", &contexts, "N,N,...", "Keys (default 512,2048)");
  table.integer("heads", &shape.heads, 1, 1024, "N", "Query heads");
  table.integer("kv-heads", &shape.kv_heads, 1, 1024, "N", "Key and value heads, a divisor of --heads");
  table.integer("size", &shape.size, 1, 1024, "N", "Size of a head");
  table.choice("cache", &cache, {"f32", "bf16"}, "Number format of cached keys and values");
  table.integer("threads", &machine.threads, 0, 4096, "N", "Threads, 0: all processors");
  table.choice("isa", &machine.isa, instruction_set_names(), "Instruction set");
  table.number("seconds", &time.seconds, 0.001, 3600, "S", "Time for a case");
  add_json_option(table, &json, "Print one JSON object a case and nothing else");
  if (!table.parse(arguments)) return kExitOk;
  if (shape.heads % shape.kv_heads) throw UsageError(fmt::format("--kv-heads is {}, allowed are divisors of --heads, {}", shape.kv_heads, shape.heads));
  const std::vector<std::int32_t> sizes = contexts.value_or(std::vector<std::int32_t>{512, 2048});
  for (const std::int32_t n : sizes)
    if (n < 1 || n > (1 << 17)) throw UsageError(fmt::format("--context contains {}, allowed is 1 to {}", n, 1 << 17));
  shape.bf16_cache = cache == "bf16";

  install_interrupt_handlers();
  if (!json) std::printf("%8s %8s %6s %12s %12s %10s %10s\n", "rows", "context", "cache", "median us", "least us", "GFLOP/s", "GB/s");
  for (const std::int32_t context : sizes)
    for (const std::int32_t rows : {1, context}) {
      shape.rows = rows;
      shape.context = context;
      const AttentionTiming t = time_attention(shape, backend_options(machine), time);
      if (json) {
        const nlohmann::ordered_json line{{"rows", rows},
                                          {"context", context},
                                          {"heads", shape.heads},
                                          {"kv_heads", shape.kv_heads},
                                          {"size", shape.size},
                                          {"cache", cache},
                                          {"seconds", seconds_json(t.time)},
                                          {"runs", t.time.runs},
                                          {"gigaflops", t.gigaflops},
                                          {"gigabytes_per_second", t.gigabytes_per_second}};
        std::printf("%s\n", line.dump().c_str());
      } else {
        std::printf("%8d %8d %6s %12.1f %12.1f %10.1f %10.1f\n", rows, context, cache.c_str(), t.time.median * 1e6, t.time.least * 1e6, t.gigaflops,
                    t.gigabytes_per_second);
      }
      std::fflush(stdout);
      if (context == 1) break;
    }
  return kExitOk;
}

int bench_memory(const Arguments& arguments) {
  std::int64_t threads = 0;
  bool json = false;
  OptionTable table("bench memory", "Reads memory in several ways (plain, prefetched, non-temporal, in 1 to 16 streams) and says the speed of the fastest.",
                    {"lockstep bench memory --threads 1"});
  table.integer("threads", &threads, 0, 4096, "N", "Threads, 0: all processors");
  add_json_option(table, &json, "Print one JSON object and nothing else");
  if (!table.parse(arguments)) return kExitOk;
  const std::int64_t used = threads > 0 ? threads : available_processors();
  const MemorySpeed speed = memory_speed(used);
  if (json)
    std::printf(
        "%s\n",
        nlohmann::ordered_json{{"kind", "memory"}, {"threads", used}, {"gigabytes_per_second", speed.gigabytes_per_second}, {"how", speed.how}}.dump().c_str());
  else std::printf("%.1f GB/s with %lld threads: %s\n", speed.gigabytes_per_second, static_cast<long long>(used), speed.how.c_str());
  return kExitOk;
}

int bench_arithmetic(const Arguments& arguments) {
  RuntimeSettings machine;
  TimeBudget time{0.5, interrupt_token()};
  bool json = false;
  OptionTable table("bench arithmetic",
                    "Times fp32 multiply-adds in registers alone, the ceiling of every product on this machine, and those of a product's tile whose "
                    "operands are in the first cache.",
                    {"lockstep bench arithmetic --threads 1"});
  table.integer("threads", &machine.threads, 0, 4096, "N", "Threads, 0: all processors");
  table.choice("isa", &machine.isa, instruction_set_names(), "Instruction set");
  table.number("seconds", &time.seconds, 0.001, 3600, "S", "Time; the best run counts");
  add_json_option(table, &json, "Print one JSON object and nothing else");
  if (!table.parse(arguments)) return kExitOk;
  const ArithmeticTiming t = time_arithmetic(backend_options(machine), time.seconds);
  if (json)
    std::printf(
        "%s\n",
        nlohmann::ordered_json{{"kind", "arithmetic"}, {"threads", t.threads}, {"isa", t.isa}, {"gigaflops", t.gigaflops}, {"tile_gigaflops", t.tile_gigaflops}}
            .dump()
            .c_str());
  else std::printf("%.1f GFLOP/s with %d threads, %s; a product's tile in the first cache: %.1f\n", t.gigaflops, t.threads, t.isa.c_str(), t.tile_gigaflops);
  return kExitOk;
}

// What the kinds that run a model share: its options, and the row that they print.
struct ModelBench {
  RuntimeSettings runtime;
  TimeBudget time{2, interrupt_token()};
  bool json = false;
  ProfileOptions profile;

  void add_options(OptionTable& table) {
    profile.add_options(table);
    table.number("seconds", &time.seconds, 0.001, 3600, "S", "Time for a case");
    add_runtime_options(table, runtime);
    add_json_option(table, &json, "Print one JSON object a case and nothing else");
  }
  OpenedModel open() {
    install_interrupt_handlers();
    OpenedModel opened = open_model(runtime);
    profile.begin(runtime);
    return opened;
  }
  // After the last case, which no model outlives.
  int finish() {
    if (!json) return profile.say(stdout), kExitOk;
    if (const std::optional<OperationReport> report = profile.end()) {
      nlohmann::ordered_json line{{"kind", "operations"}};
      line.update(operation_json(*report));
      std::printf("%s\n", line.dump().c_str());
    }
    return kExitOk;
  }
  void print(const std::string& kind, nlohmann::ordered_json what, const ModelTiming& t) const {
    if (json) {
      nlohmann::ordered_json line{{"kind", kind}, {"profile", runtime.profile}};
      line.update(what);
      line.update({{"seconds", seconds_json(t.time)}, {"runs", t.time.runs}, {"tokens_per_second", t.tokens_per_second}, {"peak_memory_bytes", peak_memory()}});
      std::printf("%s\n", line.dump().c_str());
    } else {
      std::string text;
      for (const auto& [name, value] : what.items()) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", value.dump(), name);
      std::printf("%-8s %-28s %10.1f tokens/s   %9.3f ms (%.3f .. %.3f, %lld runs)   peak %lld MB\n", kind.c_str(), text.c_str(), t.tokens_per_second,
                  t.time.median * 1e3, t.time.least * 1e3, t.time.most * 1e3, static_cast<long long>(t.time.runs), static_cast<long long>(peak_memory() >> 20));
    }
    std::fflush(stdout);
  }
};

int bench_prefill(const Arguments& arguments) {
  ModelBench bench;
  std::int64_t tokens = 512;
  OptionTable table("bench prefill", "Times a prompt in one forward, and the first token after it.", {"lockstep bench prefill --model DIR --tokens 512"});
  table.integer("tokens", &tokens, 1, 1 << 20, "N", "Tokens of the prompt");
  bench.add_options(table);
  if (!table.parse(arguments)) return kExitOk;
  bench.print("prefill", {{"tokens", tokens}}, time_prefill(bench.open(), tokens, bench.time));
  return bench.finish();
}

int bench_decode(const Arguments& arguments) {
  ModelBench bench;
  std::int64_t prompt = 128;
  bool with_prompts = false;
  std::optional<std::vector<std::int32_t>> streams;
  OptionTable table("bench decode", "Times steps in which every stream gets one token.", {"lockstep bench decode --model DIR --streams 1,8,32"});
  table.integers("streams", &streams, "N,N,...", "Streams at once (default 1,8,32)");
  table.integer("prompt", &prompt, 1, 1 << 20, "N", "Tokens of each stream's prompt");
  bench.add_options(table);
  table.flag("profile-prompts", &with_prompts, "With --profile-operations: the prompts' operations too, which are not timed");
  table.refused("without --profile-operations", [&bench] { return !bench.profile.operations(); });
  if (!table.parse(arguments)) return kExitOk;
  const std::vector<std::int32_t> stream_counts = streams.value_or(std::vector<std::int32_t>{1, 8, 32});
  for (const std::int32_t n : stream_counts)
    if (n < 1 || n > 4096) throw UsageError(fmt::format("--streams contains {}, allowed is 1 to 4096", n));
  const OpenedModel opened = bench.open();
  for (const std::int32_t n : stream_counts) {
    DecodeCase shape{.streams = n, .prompt = prompt};
    if (!with_prompts) shape.leave_out = [&bench](const std::function<void()>& prompts) { bench.profile.leave_out(prompts); };
    const ModelTiming t = time_decode(opened, shape, bench.time);
    nlohmann::ordered_json what{{"streams", n}, {"prompt", prompt}};
    if (bench.json) what["prompt_seconds"] = t.prompt_seconds;
    bench.print("decode", what, t);
  }
  return bench.finish();
}

// Lines of JSON, each a list of token ids.
std::vector<std::vector<std::int32_t>> texts_of(const std::string& path) {
  const std::string file = read_file(path, 1 << 30);
  std::vector<std::vector<std::int32_t>> texts;
  for (std::size_t begin = 0; begin < file.size();) {
    const std::size_t end = std::min(file.find('\n', begin), file.size());
    const std::string line = file.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const nlohmann::json ids = nlohmann::json::parse(line, nullptr, false);
    const bool integers = ids.is_array() && ids.size() >= 2 && std::all_of(ids.begin(), ids.end(), [](const nlohmann::json& id) {
                            return id.is_number_integer() && id >= 0 && id <= std::numeric_limits<std::int32_t>::max();
                          });
    if (!integers)
      fail(ErrorCode::invalid_argument, "'{}', line {}: '{}', allowed is a JSON list of two token ids or more", path, texts.size() + 1, line.substr(0, 60));
    texts.push_back(ids.get<std::vector<std::int32_t>>());
  }
  if (texts.empty()) fail(ErrorCode::invalid_argument, "'{}' has no line, allowed is a JSON list of token ids a line", path);
  return texts;
}

int bench_train(const Arguments& arguments) {
  std::string data;
  ModelBench bench;
  bench.runtime.profile = "cpu-f32";
  TrainCase shape;
  OptionTable table("bench train", "Times training steps: forward, backward, AdamW; of all parameters, or of an adapter.",
                    {"lockstep bench train --model DIR --sequences 4 --length 256"});
  table.integer("sequences", &shape.sequences, 1, 1 << 16, "N", "Sequences per step");
  table.integer("length", &shape.length, 1, 1 << 20, "N", "Tokens per sequence");
  table.input("data", &data, "FILE", "Train on these texts instead of random ones: a JSON list of token ids a line");
  table.flag("deposits", &shape.deposits, "Report the share of processor time spent in the order-free accumulators (by a sampling profiler)");
  table.flag("by-kernel", &shape.by_kernel, "Report the share of processor time spent in each kind of kernel (by the same profiler)");
  table.integer("micro-batch", &shape.micro_batch, 0, 1 << 16, "N", "Sequences per micro-batch, 0: all");
  table.flag("checkpoint-activations", &shape.checkpoint_activations, "Recompute activations in the backward pass: less memory, the same bits");
  table.kept_folder("optimizer-folder", &shape.optimizer_folder, "Keep the optimizer's state in a file there instead of in memory; no bit changes");
  table.integer("lora-rank", &shape.lora_rank, 0, 256, "N", "Train an adapter of attention and MLP of this rank over frozen weights; 0: all parameters");
  bench.add_options(table);
  if (!table.parse(arguments)) return kExitOk;
  if (!data.empty()) {
    shape.texts = texts_of(data);
    shape.sequences = static_cast<std::int64_t>(shape.texts.size());
    shape.length = 0;
    for (const std::vector<std::int32_t>& text : shape.texts) shape.length = std::max(shape.length, static_cast<std::int64_t>(text.size()) - 1);
  }
  const ModelTiming t = time_train(bench.open(), shape, bench.time);
  nlohmann::ordered_json what{{"sequences", shape.sequences}, {"length", shape.length}, {"lora_rank", shape.lora_rank}, {"first_loss", t.first_loss}};
  if (shape.deposits) what["deposit_share"] = t.deposit_share;
  if (shape.by_kernel && bench.json) {
    what["busy_processors"] = t.busy_processors;
    what["samples"] = t.samples;
    for (const auto& [name, share] : t.kernel_shares) what["kernel_shares"][name] = share;
  }
  bench.print("train", what, t);
  if (shape.by_kernel && !bench.json) {
    std::printf("of the processor time (%.2f processors were busy; %lld samples):\n", t.busy_processors, static_cast<long long>(t.samples));
    for (const auto& [name, share] : t.kernel_shares) std::printf("%6.1f%%  %s\n", 100 * share, name.c_str());
  }
  return bench.finish();
}

void add_group_options(OptionTable& table, RlCase& shape) {
  table.integer("prompts", &shape.prompts, 1, 1 << 12, "N", "Prompts per step");
  table.integer("samples", &shape.samples, 1, 1 << 10, "N", "Samples per prompt");
  table.integer("prompt", &shape.prompt, 1, 1 << 16, "N", "Tokens of a prompt");
  table.integer("tokens", &shape.tokens, 1, 1 << 16, "N", "Tokens per sample");
}

int bench_rl(const Arguments& arguments) {
  ModelBench bench;
  RlCase shape;
  OptionTable table("bench rl", "Times GRPO steps: sampling, the policy loss, AdamW, the new weights in the sampler.",
                    {"lockstep bench rl --model models/countdown-glm"});
  add_group_options(table, shape);
  bench.add_options(table);
  if (!table.parse(arguments)) return kExitOk;
  const ModelTiming t = time_rl(bench.open(), shape, bench.time);
  nlohmann::ordered_json what{{"prompts", shape.prompts}, {"samples", shape.samples}, {"tokens", shape.tokens}};
  if (bench.json) what.update({{"rollout_seconds", t.rollout_seconds}, {"learning_seconds", t.learning_seconds}});
  bench.print("rl", what, t);
  if (!bench.json) std::printf("%9.3f ms of a step are sampling, %.3f ms forward, backward and optimizer\n", t.rollout_seconds * 1e3, t.learning_seconds * 1e3);
  return bench.finish();
}

int bench_prefix(const Arguments& arguments) {
  ModelBench bench;
  RlCase shape{.prompts = 1, .samples = 8, .prompt = 128, .tokens = 128};
  OptionTable table("bench prefix",
                    "Times training steps on samples of one prompt, in turns: each sequence whole, the prompt's forward shared (no bit changes), its "
                    "backward shared too (declared).",
                    {"lockstep bench prefix --model DIR --samples 8 --prompt 128 --tokens 128"});
  add_group_options(table, shape);
  const std::vector<std::string> names = {"off", "forward", "backward"};
  std::string share = "all";
  table.choice("share", &share, {"all", "off", "forward", "backward"}, "One of them alone, so that the process holds no other's memory");
  bench.add_options(table);
  if (!table.parse(arguments)) return kExitOk;
  std::vector<PrefixSharing> kinds;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (share == "all" || share == names[i]) kinds.push_back(static_cast<PrefixSharing>(i));
  const std::vector<ModelTiming> timings = time_prefix_sharing(bench.open(), shape, kinds, bench.time);
  for (std::size_t i = 0; i < timings.size(); ++i) {
    nlohmann::ordered_json row{
        {"share", names[static_cast<std::size_t>(kinds[i])]}, {"samples", shape.samples}, {"prompt", shape.prompt}, {"tokens", shape.tokens}};
    if (share == "all") row["times_off"] = std::round(1000 * timings[0].time.median / timings[i].time.median) / 1000;
    bench.print("prefix", row, timings[i]);
  }
  return bench.finish();
}

int bench_score(const Arguments& arguments) {
  ScoringCase shape;
  std::optional<std::vector<std::int32_t>> counts;
  RuntimeSettings machine;
  TimeBudget time{1, interrupt_token()};
  bool json = false;
  OptionTable table("bench score",
                    "Times log-probabilities of given tokens under a large vocabulary, and measures the memory that they take beside the weights.",
                    {"lockstep bench score", "lockstep bench score --vocabulary 150000 --hidden 1024 --tokens 1024,4096"});
  table.integers("tokens", &counts, "N,N,...", "Tokens (default 1024,4096)");
  table.integer("vocabulary", &shape.vocabulary, 2, 1 << 20, "N", "Size of the vocabulary");
  table.integer("hidden", &shape.hidden, 1, 1 << 14, "N", "Hidden size");
  table.choice("profile", &machine.profile, profile_names(), "Numerics profile");
  table.integer("threads", &machine.threads, 0, 4096, "N", "Threads, 0: all processors");
  table.choice("isa", &machine.isa, instruction_set_names(), "Instruction set");
  table.number("seconds", &time.seconds, 0.001, 3600, "S", "Time for a case");
  add_json_option(table, &json, "Print one JSON object a case and nothing else");
  if (!table.parse(arguments)) return kExitOk;
  const std::vector<std::int32_t> sizes = counts.value_or(std::vector<std::int32_t>{1024, 4096});
  for (const std::int32_t n : sizes)
    if (n < 1 || n > (1 << 17)) throw UsageError(fmt::format("--tokens contains {}, allowed is 1 to {}", n, 1 << 17));

  install_interrupt_handlers();
  if (!json) std::printf("%8s %10s %8s %12s %10s %14s\n", "tokens", "vocabulary", "hidden", "tokens/s", "MB", "MB of logits");
  for (const std::int32_t tokens : sizes) {
    shape.tokens = tokens;
    const ScoringTiming t = time_scoring(shape, backend_options(machine), machine.profile, time);
    if (json) {
      const nlohmann::ordered_json line{{"kind", "score"},
                                        {"profile", machine.profile},
                                        {"tokens", tokens},
                                        {"vocabulary", shape.vocabulary},
                                        {"hidden", shape.hidden},
                                        {"seconds", seconds_json(t.time)},
                                        {"runs", t.time.runs},
                                        {"tokens_per_second", t.tokens_per_second},
                                        {"bytes", t.bytes},
                                        {"logits_bytes", t.logits_bytes},
                                        {"peak_memory_bytes", peak_memory()}};
      std::printf("%s\n", line.dump().c_str());
    } else {
      std::printf("%8d %10lld %8lld %12.1f %10.1f %14.1f\n", tokens, static_cast<long long>(shape.vocabulary), static_cast<long long>(shape.hidden),
                  t.tokens_per_second, static_cast<double>(t.bytes) / 1e6, static_cast<double>(t.logits_bytes) / 1e6);
    }
    std::fflush(stdout);
  }
  return kExitOk;
}

int bench_counters(const Arguments& arguments) {
  ModelBench bench;
  CounterCase shape{.sequences = 8};
  OptionTable table("bench counters", "Times forwards with the kernels' work counters (keys read, expert rows computed) and without them, in turns.",
                    {"lockstep bench counters --model models/countdown-glm", "lockstep bench counters --model DIR --streams 1 --tokens 512 --prompt 0"});
  table.integer("streams", &shape.sequences, 1, 4096, "N", "Streams at once");
  table.integer("tokens", &shape.tokens, 1, 1 << 20, "N", "Tokens of each stream in the forward");
  table.integer("prompt", &shape.context, 0, 1 << 20, "N", "Tokens of each stream that are in the cache before");
  bench.add_options(table);
  if (!table.parse(arguments)) return kExitOk;
  const CounterTiming t = time_counters(bench.open(), shape, bench.time);
  for (const bool counted : {true, false}) {
    const Timing& time = counted ? t.with : t.without;
    bench.print("counters",
                {{"counters", counted ? "on" : "off"},
                 {"streams", shape.sequences},
                 {"tokens", shape.tokens},
                 {"prompt", shape.context},
                 {"pairs_read", counted ? t.pairs_read : 0},
                 {"expert_rows", counted ? t.expert_rows : 0}},
                {time, shape.sequences * shape.tokens, static_cast<double>(shape.sequences * shape.tokens) / time.median});
  }
  return bench.finish();
}

struct Kind {
  std::string_view name, summary;
  int (*run)(const Arguments& arguments);
};
constexpr Kind kKinds[] = {{"gemm", "linear layers alone", bench_gemm},
                           {"attention", "attention alone", bench_attention},
                           {"memory", "reading memory, the fastest way", bench_memory},
                           {"arithmetic", "fp32 multiply-adds alone, the ceiling of every product", bench_arithmetic},
                           {"roofline", "both limits of this machine, by threads", bench_roofline},
                           {"prefill", "a prompt of a model", bench_prefill},
                           {"decode", "tokens of streams side by side", bench_decode},
                           {"train", "training steps", bench_train},
                           {"rl", "GRPO steps: sampling and training", bench_rl},
                           {"prefix", "training steps that share prompts", bench_prefix},
                           {"score", "log-probabilities under a large vocabulary", bench_score},
                           {"counters", "forwards with the kernels' work counters and without", bench_counters},
                           {"context", "tokens at the end of long texts, by what they take", bench_context_command},
                           {"serve", "a server under a load of classes", bench_serve_command}};
}  // namespace

int bench_command(const Arguments& arguments) {
  const std::string kind = arguments.empty() ? "--help" : arguments[0];
  std::vector<std::string> names;
  for (const Kind& known : kKinds) {
    if (known.name == kind) return known.run(Arguments(arguments.begin() + 1, arguments.end()));
    names.emplace_back(known.name);
  }
  if (kind != "--help" && kind != "-h")
    throw UsageError(fmt::format("bench: unknown kind '{}', allowed {} {}{}", kind.substr(0, 60), names.size() == 1 ? "is" : "are", fmt::join(names, ", "),
                                 did_you_mean(kind, names)));
  std::string text =
      "usage: lockstep bench KIND [options]\n\n  lockstep bench gemm --json\n  lockstep bench decode --model models/countdown-glm --streams 1,8,32\n\n";
  for (const Kind& known : kKinds) text += fmt::format("  {:<12}{}\n", known.name, known.summary);
  std::fputs((text + "\n`lockstep bench KIND --help` lists every option.\n").c_str(), stdout);
  return kExitOk;
}

}  // namespace lockstep

// `lockstep bench roofline`.
#include "cli/roofline.h"

#include <cstdio>

#include "base/thread_pool.h"
#include "benchmark/arithmetic.h"
#include "cli/common_options.h"
#include "parity/machine.h"

namespace lockstep {

namespace {
BackendOptions processor_of(const RuntimeSettings& machine, std::int64_t threads) {
  RuntimeSettings processor;
  processor.isa = machine.isa == "scalar" ? "auto" : machine.isa;
  processor.threads = threads;
  return backend_options(processor);
}

// 1, 2, 4 and so on, and all.
std::vector<std::int32_t> usual_threads() {
  const int all = available_processors();
  std::vector<std::int32_t> counts;
  for (int n = 1; n < all; n *= 2) counts.push_back(n);
  counts.push_back(all);
  return counts;
}
}  // namespace

RooflinePoint measure_limits(const RuntimeSettings& machine, std::int64_t threads, double seconds) {
  return {threads, time_arithmetic(processor_of(machine, threads), seconds).gigaflops, memory_speed(threads).gigabytes_per_second};
}

int bench_roofline(const Arguments& arguments) {
  RuntimeSettings machine;
  std::optional<std::vector<std::int32_t>> threads;
  std::string out;
  double seconds = 0.5;
  bool json = false;
  OptionTable table("bench roofline",
                    "Measures the limits of this machine by threads: fp32 multiply-adds in registers, and the best of several ways to read memory.",
                    {"lockstep bench roofline", "lockstep bench roofline --threads 1,2 --out roofline.json"});
  table.integers("threads", &threads, "N,N,...", "Threads (default: 1, 2, 4 and so on up to all processors)");
  table.choice("isa", &machine.isa, instruction_set_names(), "Instruction set of the multiply-adds");
  table.number("seconds", &seconds, 0.001, 3600, "S", "Time for the multiply-adds of a case; the best run counts");
  table.output_file("out", &out, "Write them to a file too, for --roofline of bench, train and serve");
  add_json_option(table, &json);
  if (!table.parse(arguments)) return kExitOk;
  const std::vector<std::int32_t> counts = threads.value_or(usual_threads());
  for (const std::int32_t n : counts)
    if (n < 1 || n > 4096) throw UsageError(fmt::format("--threads contains {}, allowed is 1 to 4096", n));

  Roofline roofline{read_machine().processor, std::string(), {}};
  if (!json) std::printf("%8s %12s %10s %12s\n", "threads", "GFLOP/s", "GB/s", "FLOP a byte");
  for (const std::int32_t n : counts) {
    const ArithmeticTiming arithmetic = time_arithmetic(processor_of(machine, n), seconds);
    const double memory = memory_speed(n).gigabytes_per_second;
    roofline.isa = arithmetic.isa;
    roofline.points.push_back({n, arithmetic.gigaflops, memory});
    if (json) continue;
    std::printf("%8d %12.1f %10.1f %12.1f\n", n, arithmetic.gigaflops, memory, memory > 0 ? arithmetic.gigaflops / memory : 0.0);
    std::fflush(stdout);
  }
  const std::string text = roofline_json(roofline).dump() + "\n";
  if (json) std::fputs(text.c_str(), stdout);
  else std::printf("%s, %s\n", roofline.processor.c_str(), roofline.isa.c_str());
  if (!out.empty()) write_output_file(out, text, table.overwrite());
  return kExitOk;
}

}  // namespace lockstep

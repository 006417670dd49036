// `lockstep doctor`: is this machine fit, does it give the published bits, and what fixes it if not; with --ranks, the same of the ranks of a run.
#include <cstdio>
#include <filesystem>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/doctor_lines.h"
#include "cli/doctor_ranks.h"

namespace lockstep {

int doctor_command(const Arguments& arguments) {
  std::int64_t threads = 0;
  bool json = false, quick = false;
  RanksAsked asked;
  OptionTable table("doctor",
                    "Checks this machine: instruction sets, cores, memory and its speed, limits; and compares a small model with published bits on every "
                    "instruction set. Exit code 1 when this machine does not give the published bits.",
                    {"lockstep doctor", "lockstep doctor --json", "lockstep doctor --ranks tp=2"});
  const auto of_one = [&asked] { return asked.ranks.empty(); };
  table.integer("threads", &threads, 0, 4096, "N", "Threads to measure and test with, 0: all processors");
  table.refused("with --quick", [&] { return quick && of_one(); });
  table.flag("quick", &quick, "Only facts: no measurement, no self-test; of --ranks the bits alone, without the links");
  table
      .text("ranks", &asked.ranks, "LAYOUT",
            "Instead of this machine the ranks of a run before it begins: compares what their hosts compute, operation by operation, and measures latency and "
            "bandwidth between them (docs/cluster.md). tp=2,dp=2 and the like, or auto: a rank a process; alone: auto")
      .or_alone("auto");
  add_transport_options(table, asked.processes, false);
  table.choice("isa", &asked.isa, instruction_set_names(), "Instruction set that this process's ranks compute with, auto: the widest available");
  table.model("model", &asked.model, "A model that the run is to read: its files are compared between the hosts, byte by byte; a folder, or a GGUF file");
  table.refused("without --ranks", of_one, {"transport", "isa", "model"});
  add_json_option(table, &json);
  if (!table.parse(arguments)) return kExitOk;

  if (!asked.ranks.empty()) {
    asked.threads = threads, asked.quick = quick, asked.json = json;
    return doctor_of_ranks(asked);
  }
  const MachineFacts facts = read_machine();
  if (threads == 0) threads = std::max<std::int64_t>(1, facts.usable_processors);
  const MemorySpeed memory = quick ? MemorySpeed() : memory_speed(threads);
  const double bandwidth = memory.gigabytes_per_second;
  const std::vector<SelfTestRow> rows = quick ? std::vector<SelfTestRow>() : run_self_test(static_cast<int>(threads));
  std::error_code unknown;
  const auto space = std::filesystem::space(".", unknown);
  const std::vector<Finding> findings = judge(facts, bandwidth, rows, unknown ? -1 : static_cast<std::int64_t>(space.available));
  bool fit = true;
  for (const Finding& finding : findings) fit = fit && finding.level != Finding::Level::problem;

  if (json) {
    nlohmann::ordered_json self_test = nlohmann::ordered_json::array();
    for (const SelfTestRow& row : rows)
      self_test.push_back({{"profile", row.profile},
                           {"instruction_set", row.isa},
                           {"threads", row.threads},
                           {"hash", row.hash},
                           {"published", row.published},
                           {"passed", row.passed()}});
    const nlohmann::ordered_json answer{{"fit", fit},
                                        {"processor", facts.processor},
                                        {"features", facts.features},
                                        {"processors", facts.processors},
                                        {"usable_processors", facts.usable_processors},
                                        {"cores", facts.cores},
                                        {"nodes", facts.nodes},
                                        {"node_processors", facts.node_processors},
                                        {"memory_bytes", facts.memory_bytes},
                                        {"memory_available_bytes", facts.memory_available_bytes},
                                        {"memory_gigabytes_per_second", bandwidth},
                                        {"open_files", facts.open_files},
                                        {"findings", findings_json(findings)},
                                        {"self_test", std::move(self_test)}};
    print_as_line(answer);
  } else {
    print_findings(findings);
    std::printf("%s\n", fit ? "this machine is fit" : "this machine is NOT fit");
  }
  return fit ? kExitOk : kExitError;
}

}  // namespace lockstep

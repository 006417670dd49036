// `lockstep doctor`: is this machine fit, does it give the published bits, and what fixes it if not.
#include <cstdio>
#include <filesystem>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "parity/doctor.h"

namespace lockstep {

int doctor_command(const Arguments& arguments) {
  std::int64_t threads = 0;
  bool json = false, quick = false;
  OptionTable table("doctor",
                    "Checks this machine: instruction sets, cores, memory and its speed, limits; and compares a small model with published bits on every "
                    "instruction set. Exit code 1 when this machine does not give the published bits.",
                    {"lockstep doctor", "lockstep doctor --json"});
  table.integer("threads", &threads, 0, 4096, "N", "Threads to measure and test with, 0: all processors");
  table.refused("with --quick", [&quick] { return quick; });
  table.flag("quick", &quick, "Only facts: no measurement, no self-test");
  add_json_option(table, &json);
  if (!table.parse(arguments)) return kExitOk;

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
    nlohmann::ordered_json found = nlohmann::ordered_json::array(), self_test = nlohmann::ordered_json::array();
    for (const Finding& f : findings) found.push_back({{"level", finding_level_name(f.level)}, {"subject", f.subject}, {"text", f.text}, {"mend", f.mend}});
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
                                        {"findings", std::move(found)},
                                        {"self_test", std::move(self_test)}};
    std::printf("%s\n", answer.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
  } else {
    for (const Finding& f : findings) {
      std::printf("%-8s %-10s %s\n", finding_level_name(f.level).c_str(), f.subject.c_str(), f.text.c_str());
      if (!f.mend.empty()) std::printf("%-8s %-10s -> %s\n", "", "", f.mend.c_str());
    }
    std::printf("%s\n", fit ? "this machine is fit" : "this machine is NOT fit");
  }
  return fit ? kExitOk : kExitError;
}

}  // namespace lockstep

// The run that `lockstep launch` starts, read from the words behind --, by the options of the command itself; and the layout of its ranks over hosts.
//   const std::optional<LaunchedRun> run = read_launched_run({"train", "sft", ...}); LayoutChoice choose(*run, {.ranks = "auto"}); choose(hosts).ranks
// One thread.
#pragma once
#include <map>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "launch/mpirun_line.h"
#include "planning/step_simulation.h"

namespace lockstep {

struct LaunchedRun {
  std::string kind;              // "train sft"
  std::filesystem::path folder;  // runs/NAME
  RuntimeSettings runtime;       // what the simulation of a step needs of them; the ranks as they were given
  std::int64_t sequences = 0;    // of a step, as far as the options say
  std::int64_t micro_batch = 0;
  bool checkpoint_activations = false;
  bool resume = false, saves = false;  // it writes checkpoints between
};

// Empty: --help was printed. Errors: UsageError for another command than train, and as the command itself refuses its options.
std::optional<LaunchedRun> read_launched_run(const Arguments& words);

struct LayoutWish {
  std::string ranks = "auto";       // or a layout, which holds
  std::string device = "measured";  // whose rates (cli/device_rates.h)
  std::int64_t length = 0;          // tokens of a sequence; 0: 4096, or the model's context if that is less
  std::optional<double> network;    // gigabits a second between hosts; none: those of the data sheet, 10 for a measured device
};

class LayoutChoice {
 public:
  // Errors: those of rank_layout.
  LayoutChoice(const LaunchedRun& run, LayoutWish wish);
  // A layout that holds has as many processes as it has ranks, or as there are slots if those are fewer. auto: a rank a slot, in the layout in which
  // `lockstep simulate` computes the shortest step; all hosts are taken to have the slots of the smallest. Errors: resource_exhausted where none fits.
  LaunchLayout operator()(const std::vector<Host>& hosts);

 private:
  DeviceRates rates_over(const std::vector<Host>& hosts);
  LaunchLayout simulated(const std::vector<Host>& hosts);

  const LaunchedRun run_;
  const LayoutWish wish_;
  std::optional<RankLayout> held_;
  std::shared_ptr<const Model> model_;
  std::optional<DeviceRates> device_;
  std::map<std::string, LaunchLayout> known_;  // by hosts: a measurement is made once, and what it says too
};

}  // namespace lockstep

// Internals of a parity run (parity/parity.h), for parity_*.cpp only: shared state, the benches on which things are
// computed, and one function per part.
//   ParityPlace place = parity_reference(); place.threads = 3; place.text();
#pragma once
#include <functional>
#include <map>

#include "base/philox.h"
#include "engine/engine.h"
#include "observe/progress.h"
#include "parity/bench_trainer.h"
#include "parity/engine_ways.h"
#include "parity/parity.h"
#include "parity/parity_recording.h"

namespace lockstep {

using Tokens = std::vector<std::int32_t>;

// One configuration in which this machine can compute.
struct ParityPlace {
  BackendKind backend = BackendKind::cpu;
  InstructionSet isa = InstructionSet::scalar;
  int threads = 1;
  std::int64_t page_size = 16;
  RankLayout ranks = {};
  bool serve_defaults = false;  // the engine as `lockstep serve` has it, and not one with small pages, chunks and cache
  bool over_processes = false;  // its ranks are those of ParityOptions::lead
  std::string text() const;     // "deferred avx2, 3 threads, pages of 4, tp=2,dp=1,ep=1"
};
// The reference, and the configurations of the forward that are compared with it, all of which every run visits: numbers of
// threads and backends without ranks, then every layout of ranks, and slow ones (scalar, emulated) last. The seed chooses which layout is
// combined with which backend, threads and pages.
ParityPlace parity_reference();
struct ParityPlaces {
  std::vector<ParityPlace> all;
  std::size_t fast = 0;  // the first of all
};
ParityPlaces parity_places(const ParityOptions& options);
// The requested device besides the CPU, or none.
std::optional<BackendKind> parity_device(const ParityOptions& options);
// Layouts of ranks, in the order in which places and steps use them; the requested one first.
std::vector<RankLayout> parity_layouts(const ParityOptions& options);

// State shared by all parts.
struct ParityScene {
  const ParityModel& model;
  const ParityOptions& options;
  const Profile& profile;
  ParityReport& report;
  Progress& progress;
  std::int64_t longest = 0;       // tokens of a case
  std::int64_t longest_step = 0;  // tokens of a training sequence
  std::map<std::string, std::int64_t> counters;

  ParityVisit& visit(const ParityPlace& place) const;  // the report's entry for this place, made if there is none
  ProcessMail* lead(const ParityPlace& place) const { return place.over_processes ? options.lead : nullptr; }
  // The same for the place's engine, whose ranks are those of one replica: null (threads of process 0) if these are too few for all processes.
  ProcessMail* engine_lead(const ParityPlace& place) const;
  // Whether all weights train under this profile, and whether an adapter does: a profile for serving alone has no steps to compare.
  bool trains() const { return profile.trains_all_weights(); }
  bool adapts() const;
  bool steps() const { return trains() || adapts(); }
  // Tokens of a sequence that the cp ranks of the requested layout have in pieces; 0: it has none, or the model's context is too short.
  std::int64_t cut_length() const;
  RandomSequence draws(std::uint64_t item) const { return RandomSequence(options.seed, RandomStream::fuzz, item); }
  Tokens random_tokens(RandomSequence& draws, std::int64_t n) const;
  // Counts a mismatch; the first is described (which may run things again).
  void mismatch(const std::function<ParityMismatch()>& describe);
};

// A runtime at a place. The engine's cache holds little more than one case, so that pages run out.
struct ParityBench {
  ParityPlace place;
  Runtime runtime;
  std::unique_ptr<BenchTrainer> trainer;
  std::unique_ptr<Engine> engine;  // null: not asked for

  ParityBench(const ParityScene& scene, const ParityPlace& at, const Profile& profile, bool with_engine);
  // Runs `work` with `observer` on every forward.
  template <class F>
  auto observed(OperationObserver& observer, const F& work) -> decltype(work()) {
    struct Guard {
      Runtime& runtime;
      ~Guard() { runtime.observer = nullptr; }
    } guard{runtime};
    runtime.observer = &observer;
    return work();
  }
};

// Runs something, with the observer on every forward of it.
using ObservedRun = std::function<void(OperationObserver&)>;
// The first operation in which two runs over the same tokens differ. Each run is done twice: the second pass records the bits of that
// operation. Empty: no operation differs, or not any more in the second pass.
std::optional<ParityMismatch> first_operation_mismatch(const Tokens& tokens, const ObservedRun& expected, const ObservedRun& got);

// Log-probabilities over all ways and places.
void fuzz_forward(ParityScene& scene);
// On one bench, for every sampling setting: compares the sampler's log-probability of each sampled token with the training forward's over the kept
// sets. Control: without the sets they must differ. Also compares what is sampled with speculative decoding (docs/speculation.md) and without.
void compare_sampling(ParityScene& scene, ParityBench& bench, std::uint64_t item);
// Gradients and weights over all that must not matter to a step. Two optimiser steps a comparison.
void fuzz_steps(ParityScene& scene);
// A trained adapter in every way of serving.
void serve_adapter(ParityScene& scene);
// The most memory that a parity run takes in this process, in bytes.
std::int64_t parity_memory(const ParityScene& scene);
std::int64_t parity_step_comparisons(const ParityScene& scene);
std::int64_t parity_forward_comparisons(const ParityScene& scene);
// Checks that a step gives different weights under the two profiles: sets report.control.step_detected.
void run_step_control(ParityScene& scene, const Profile& profile, const Profile& other);
// The negative control of forward, step and serving, under a profile with another leaf count: fills report.control.
void run_parity_control(ParityScene& scene);
// The control's own model of profiles like this one.
ParityModel control_model(const Profile& profile);
// A profile, or one that controls alone use, by its name.
const Profile& profile_of_bench(const std::string& name);

}  // namespace lockstep

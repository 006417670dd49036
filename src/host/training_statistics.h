// Counters of a training service since it was made, for metrics. Knows no wire format. Any thread, except where a member says otherwise.
//   TrainingStatistics statistics; TrainingActivity model; statistics.arrived(model); statistics.ended(model);
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

#include "host/rank_totals.h"
#include "observe/prometheus.h"

namespace lockstep {

// Of one model: under its lock (host/hosted_model.h).
struct TrainingActivity {
  std::int64_t open = 0;                          // operations without a result yet
  std::chrono::steady_clock::time_point since{};  // when the first of them arrived
  bool first_told = false;
};

struct TrainingStatistics {
  std::atomic<std::uint64_t> operations{0};                                     // operations of models that have ended
  std::atomic<std::uint64_t> failed{0};                                         // of these, with an error
  std::atomic<std::uint64_t> forward_tokens{0}, gradient_tokens{0};             // input tokens of finished batches: forward; forward_backward
  std::atomic<std::uint64_t> early{0};                                          // batches computed before their turn
  std::atomic<std::uint64_t> undone{0};                                         // of these, undone and computed again
  std::atomic<std::uint64_t> rested{0}, gradients_saved{0}, gradients_read{0};  // models moved to disk; gradients written to disk, and read back
  std::atomic<std::uint64_t> shared_passes{0}, shared_pieces{0};                // passes of several models, and their pieces
  RankTotals ranks;                                                             // of the trainers, as of the newest optimizer step
  // Seconds from the first operation of an idle model to its first result: how long a client that splits a call into many requests waits for the first answer.
  Histogram first_result_seconds{Histogram::second_bounds()};

  void arrived(TrainingActivity& model) {
    if (model.open++ > 0) return;
    model.since = std::chrono::steady_clock::now();
    model.first_told = false;
  }
  void ended(TrainingActivity& model) {
    ++operations;
    --model.open;
    if (model.first_told) return;
    model.first_told = true;
    first_result_seconds.observe(std::chrono::duration<double>(std::chrono::steady_clock::now() - model.since).count());
  }
  // A batch has finished: one input token a position.
  template <class Sequences>
  void computed(const Sequences& sequences, bool forward_only) {
    std::uint64_t tokens = 0;
    for (const auto& sequence : sequences) tokens += sequence.tokens.size();
    (forward_only ? forward_tokens : gradient_tokens) += tokens;
  }
  void append(PrometheusText& text) const {
    const auto one = [&](const char* name, const char* help, const std::atomic<std::uint64_t>& value) {
      text.family(name, "counter", help);
      text.sample({}, static_cast<double>(value.load()));
    };
    one("lockstep_training_operations_total", "Operations on trained models that have ended.", operations);
    one("lockstep_training_operations_failed_total", "Of those: whose result was an error.", failed);
    text.family("lockstep_training_tokens_total", "counter", "Input tokens of forward and forward_backward operations whose result was told.");
    text.sample({{"operation", "forward"}}, static_cast<double>(forward_tokens.load()));
    text.sample({{"operation", "forward_backward"}}, static_cast<double>(gradient_tokens.load()));
    one("lockstep_training_early_total", "Batches computed before the numbers in front of them had come.", early);
    one("lockstep_training_undone_total", "Of those: computed again, since one of these numbers changed the model.", undone);
    one("lockstep_training_models_rested_total", "Models that left memory for others, or with their session, and are on disk.", rested);
    one("lockstep_training_gradients_saved_total", "Of those: with gradients that no step has taken.", gradients_saved);
    one("lockstep_training_gradients_read_total", "Such gradients that came back to memory.", gradients_read);
    one("lockstep_training_shared_passes_total", "Passes over the base in which several models had pieces.", shared_passes);
    one("lockstep_training_shared_pieces_total", "Pieces in such passes.", shared_pieces);
    text.family("lockstep_training_first_result_seconds", "histogram", "From the first operation of a model that had none open to the first result.");
    text.histogram({}, first_result_seconds);
    ranks.append(text);
  }
};

}  // namespace lockstep

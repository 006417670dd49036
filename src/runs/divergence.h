// Turns a NaN or an infinity in training into an error that names the step and says what to try. Knows no command line, only its options' names.
//   const auto result = named_divergence({.step = 12, .learning_rate = 0.1, .run = "runs/a"}, [&] { return trainer.step(...); });
#pragma once
#include <filesystem>
#include <utility>

#include "base/error.h"

namespace lockstep {

struct DivergenceSettings {
  std::int64_t step = 0;      // the failed step, from 1
  double learning_rate = 0;   // at this step
  double max_norm = 0;        // 0: gradients are not clipped
  std::filesystem::path run;  // whose checkpoints can be resumed
};

// One sentence: the step, the fault, what to try, and the newest checkpoint if there is one.
std::string divergence_text(const DivergenceSettings& settings, const std::string& found);

// Calls work(); an Error numeric becomes one with divergence_text.
template <class F>
auto named_divergence(const DivergenceSettings& settings, F&& work) -> decltype(work()) {
  try {
    return work();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::numeric) throw;
    throw Error(ErrorCode::numeric, divergence_text(settings, e.what()));
  }
}

}  // namespace lockstep

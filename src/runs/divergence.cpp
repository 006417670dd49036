#include "runs/divergence.h"

#include "runs/training_state.h"

namespace lockstep {

std::string divergence_text(const DivergenceSettings& s, const std::string& found) {
  const std::string clip = s.max_norm > 0 ? fmt::format("a smaller --max-norm (it is {})", s.max_norm) : "--max-norm 1 (gradients are not clipped)";
  std::string from;
  try {
    from = fmt::format("; --fork NEW begins a run with the weights of '{}'", newest_checkpoint(s.run));
  } catch (const Error&) {  // none was saved
  }
  return fmt::format("the run diverged at step {}: {}; try a lower --learning-rate (it was {:.3g} at this step), {}, or a longer --warmup{}", s.step, found,
                     s.learning_rate, clip, from);
}

}  // namespace lockstep

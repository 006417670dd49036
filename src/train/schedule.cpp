#include "train/schedule.h"

#include "base/choice.h"
#include "numerics/elementary_double.h"

namespace lockstep {

double learning_rate(const Schedule& s, std::int64_t step) {
  if (step < s.warmup) return s.peak * static_cast<double>(step + 1) / static_cast<double>(s.warmup);
  const double span = static_cast<double>(s.steps - s.warmup);
  const double done = span > 0 ? static_cast<double>(step - s.warmup) / span : 1.0;
  const double rest = done < 1.0 ? 1.0 - done : 0.0;
  if (s.kind == "constant") return s.peak;
  if (s.kind == "linear") return s.peak * (s.final_fraction + (1.0 - s.final_fraction) * rest);
  if (s.kind == "cosine") {
    double sine, cosine;
    sin_cos_double(3.14159265358979323846 * (1.0 - rest), sine, cosine);
    return s.peak * (s.final_fraction + (1.0 - s.final_fraction) * 0.5 * (1.0 + cosine));
  }
  fail_choice("schedule", s.kind, {"constant", "linear", "cosine"});
}

}  // namespace lockstep

// The optimizer adamw: AdamW for all parameters.
#include "train/optimizers/adam.h"
#include "train/optimizers/filed_step.h"

namespace lockstep {

namespace {
class AdamWStepper final : public Stepper {
 public:
  explicit AdamWStepper(const StepSettings& settings) : settings_(settings), step_(settings.adam, settings.step) {}
  void move(const Parameter&, const ParameterRole& role, const StepViews& v) override {
    launch_adamw(settings_.backend, settings_.file,
                 step_.of(v.master, v.moments[0], v.moments[1], v.master_out, v.compute_out, v.gradient, settings_.norm, role.decays));
  }

 private:
  StepSettings settings_;
  AdamStep step_;
};
}  // namespace

OptimizerFamily adamw() {
  return {"adamw", false, [](const ParameterRole&) { return MomentSpec{.moments = 2}; },
          [](const StepSettings& settings) -> std::unique_ptr<Stepper> { return std::make_unique<AdamWStepper>(settings); }};
}

}  // namespace lockstep

// The optimizer dimuon: Muon for matrices between hidden states, AdamW for the rest.
#include "train/optimizers/muon.h"
#include "train/optimizers/optimizer.h"

namespace lockstep {

namespace {
// AdamW for the parameters that Muon does not update: a rate of its own, and fixed hyperparameters except beta1.
StepSettings of_the_rest(StepSettings settings) {
  const AdamParameters standard;
  settings.adam.learning_rate *= Muon::kAdamRate;
  settings.adam.beta2 = standard.beta2, settings.adam.eps = standard.eps, settings.adam.weight_decay = 0;
  return settings;
}

class DimuonStepper final : public Stepper {
 public:
  explicit DimuonStepper(const StepSettings& settings)
      : muon_(settings.backend, {settings.adam.learning_rate, static_cast<float>(settings.adam.beta1), settings.factor}),
        rest_(adamw().begin(of_the_rest(settings))) {}
  void move(const Parameter& parameter, const ParameterRole& role, const StepViews& v) override {
    if (role.hidden) muon_.step(parameter, {v.master, v.moments[0], v.master_out, v.compute_out, v.gradient});
    else rest_->move(parameter, role, v);
  }

 private:
  Muon muon_;
  std::unique_ptr<Stepper> rest_;
};
}  // namespace

OptimizerFamily dimuon() {
  return {"dimuon", true, [](const ParameterRole& role) { return role.hidden ? MomentSpec{.moments = 1, .whole = true} : adamw().moments(role); },
          [](const StepSettings& settings) -> std::unique_ptr<Stepper> { return std::make_unique<DimuonStepper>(settings); }, Muon::kAdamRate};
}

}  // namespace lockstep

// The interface of an optimizer: which moments it has per parameter, and one step. A new one is a file beside this one and a row in optimizers.cpp;
// trainers of weights and adapters, state files, checkpoints and memory plans use only its row. Plain values. A stepper is used by one thread.
//   const OptimizerFamily& dimuon = *optimizer_named("dimuon"); dimuon.begin(step)->move(parameter, role, views);
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "model/manifest.h"

namespace lockstep {

class FileMemory;

struct AdamParameters {
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0;      // decoupled; of matrices, not of norms and biases
  double max_norm = 1.0;        // 0: no clipping
  double router_bias_rate = 0;  // u: b_e += u sign(mean load - load_e); 0: frozen
  double gradient_scale = 1;    // above 0, at most 1: of every gradient, before its norm and the clip
  bool group_norms = false;     // OptimResult::group_norms is wanted
};

// What an optimizer may use besides a parameter's shape.
struct ParameterRole {
  bool decays = true;  // weight decay reaches it: a matrix of the whole model
  bool hidden = true;  // a matrix between hidden states: no norm or bias, no embedding, not the head
};

// The moments of a parameter.
struct MomentSpec {
  static constexpr int kMostMoments = 2;
  int moments = 0;     // f32, one number per weight, +0 before the first step
  bool whole = false;  // a step reads the whole moment at once; else in strips, if it is in a file (filed_step.h)
};

// One parameter's values at a step: f32 and flat, of the rows that this rank steps.
struct StepViews {
  View master;
  View moments[MomentSpec::kMostMoments];  // as many as MomentSpec says; updated in place
  View master_out;                         // may be `master`
  View compute_out;                        // f32 or bf16: the next version's compute copy; none when master_out is it, or it is quantised afterwards
  View gradient;
};

// What is the same for all parameters of a step.
struct StepSettings {
  Backend& backend;
  AdamParameters adam;               // max_norm as AdamW's kernel clips by it (gradient_norm.h)
  std::int64_t step;                 // from 1
  View norm;                         // f32 [1, 1]: what that kernel compares with max_norm
  float factor;                      // of every gradient: its scale and the clip in one
  std::shared_ptr<FileMemory> file;  // the file of state that is read and written in strips; null: updated in place
};

class Stepper {
 public:
  virtual ~Stepper() = default;
  virtual void move(const Parameter& parameter, const ParameterRole& role, const StepViews& views) = 0;
};

struct OptimizerFamily {
  std::string_view name;
  bool whole_matrices = false;  // it needs whole matrices: each is one rank's, and no rank has a part of one
  MomentSpec (*moments)(const ParameterRole& role);
  std::unique_ptr<Stepper> (*begin)(const StepSettings& settings);
  // Parameters that it leaves to AdamW get this fraction of its learning rate; of AdamW's other settings only beta1 is used.
  double adamw_share = 1;
};

// AdamW (adamw.cpp); the first row.
OptimizerFamily adamw();
const std::vector<OptimizerFamily>& optimizer_families();
// Null: unknown name.
const OptimizerFamily* optimizer_named(std::string_view name);

}  // namespace lockstep

// Muon (Jordan et al. 2024), for matrices: momentum, then the nearest orthogonal matrix by five Newton-Schulz steps. Per matrix W [N, K]:
//  g' = g factor; m = fma(beta, m, (1 - beta) g'); u = fma(beta, m, (1 - beta) g')                              (Nesterov)
//  Z = u or its transpose, [max(N, K), min(N, K)], divided by max(||Z||, 1e-7)
//  five times: A = Z^T Z, C = fma(c, A A, b A) + a I, Z = Z C;  (a, b, c) = (3.4445, -4.7750, 2.0315)
//  master' = master - rate Z, rate = learning_rate sqrt(max(1, N / K))
// Every order is fixed (docs/numerics.md, "Optimizer"): products are kernels/linear's, the rest is elementwise on the host. One thread at a time.
//   Muon muon(backend, {.learning_rate = 0.02f}); muon.step(parameter, {master, momentum, next, {}, gradient});
#pragma once
#include "kernels/backend.h"
#include "model/manifest.h"

namespace lockstep {

struct MuonParameters {
  double learning_rate = 0.02;
  float beta = 0.95f;
  float factor = 1;  // of every gradient: its scale and the clip (train/gradient_norm.h)
};

// Of one parameter, in its layout, f32 flat; `momentum` is updated in place.
struct MuonViews {
  View master, momentum;
  View master_out;   // may be `master`
  View compute_out;  // f32 or bf16: the next version's compute copy; none when master_out is it
  View gradient;
};

class Muon {
 public:
  Muon(Backend& backend, const MuonParameters& parameters) : backend_(backend), parameters_(parameters) {}
  // Each item of the parameter is a matrix of its own.
  void step(const Parameter& parameter, const MuonViews& views);
  // AdamW updates the rest (vectors, embedding, head) at this times Muon's learning rate. 3e-4 to 0.02, as Jordan's.
  static constexpr double kAdamRate = 0.015;

 private:
  // z [rows, cols] row-major, rows >= cols, of norm 1 at most: becomes orthogonal.
  void orthogonalise(std::vector<float>& z, std::int64_t rows, std::int64_t cols);

  Backend& backend_;
  MuonParameters parameters_;
};

}  // namespace lockstep

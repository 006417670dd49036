// Muon: the update against Newton-Schulz in double, and that its bits are the matrix's alone.
#include "train/optimizers/muon.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/comparison_test_tools.h"
#include "train/adapter_trainer.h"
#include "train/prefix_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

using Matrix = std::vector<double>;

Matrix times(const Matrix& a, const Matrix& b, std::int64_t rows, std::int64_t inner, std::int64_t cols) {
  Matrix out(static_cast<std::size_t>(rows * cols));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t k = 0; k < inner; ++k)
      for (std::int64_t j = 0; j < cols; ++j)
        out[static_cast<std::size_t>(i * cols + j)] += a[static_cast<std::size_t>(i * inner + k)] * b[static_cast<std::size_t>(k * cols + j)];
  return out;
}
Matrix transposed(const Matrix& a, std::int64_t rows, std::int64_t cols) {
  Matrix out(a.size());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) out[static_cast<std::size_t>(j * rows + i)] = a[static_cast<std::size_t>(i * cols + j)];
  return out;
}
// As written by Jordan: X = a X + (b A + c A A) X, A = X X^T, of a wide X.
Matrix orthogonal(Matrix x, std::int64_t rows, std::int64_t cols) {
  if (rows > cols) return transposed(orthogonal(transposed(x, rows, cols), cols, rows), cols, rows);
  double squares = 0;
  for (const double v : x) squares += v * v;
  for (double& v : x) v /= std::max(std::sqrt(squares), 1e-7);
  for (int step = 0; step < 5; ++step) {
    const Matrix a = times(x, transposed(x, rows, cols), rows, cols, rows), aa = times(a, a, rows, rows, rows);
    Matrix b(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) b[i] = -4.7750 * a[i] + 2.0315 * aa[i];
    const Matrix bx = times(b, x, rows, rows, cols);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] + bx[i];
  }
  return x;
}

struct MuonState {
  std::vector<float> master, momentum;
};

struct MuonCase {
  Parameter parameter;
  std::vector<std::vector<float>> gradients;  // packed, of each step
  std::vector<float> master;
  MuonCase(std::int64_t count, std::int64_t outputs, std::int64_t inputs) {
    parameter.count = count, parameter.outputs = outputs, parameter.inputs = inputs;
    RandomSequence draws(static_cast<std::uint64_t>(outputs * 1000 + inputs), RandomStream::fuzz);
    const auto fill = [&] {
      std::vector<float> values(static_cast<std::size_t>(parameter.size()));
      for (std::int64_t g = 0; g < count; ++g)
        for (std::int64_t n = 0; n < outputs; ++n)
          for (std::int64_t k = 0; k < inputs; ++k) values[static_cast<std::size_t>(parameter.offset(g, n, k))] = static_cast<float>(draws.uniform() - 0.5);
      return values;
    };
    master = fill();
    for (int step = 0; step < 2; ++step) gradients.push_back(fill());
  }
  MuonState run(const BackendOptions& options, const MuonParameters& how) const {
    Backend backend(options);
    const auto flat = [&](const std::vector<float>& values) { return backend.device().upload(values, 1, parameter.size(), MemoryCategory::workspace); };
    const Buffer w = flat(master), m = backend.device().allocate_zero(DType::f32, 1, parameter.size(), MemoryCategory::workspace);
    Muon muon(backend, how);
    for (const std::vector<float>& gradient : gradients) {
      const Buffer g = flat(gradient);
      muon.step(parameter, {w.view(), m.view(), w.view(), {}, g.view()});
    }
    return {backend.stream().read(w.view()).get(), backend.stream().read(m.view()).get()};
  }
};

TEST(Muon, IsNewtonSchulzOfTheMomentum) {
  for (const auto& [count, outputs, inputs] : {std::tuple<int, int, int>{1, 4, 4}, {1, 1, 40}, {2, 24, 70}, {1, 70, 24}, {1, 16, 600}, {3, 130, 9}}) {
    const MuonCase c(count, outputs, inputs);
    const double beta = 0.9, factor = 0.5, rate = 0.02 * std::sqrt(std::max(1.0, double(outputs) / inputs));
    const MuonState got = c.run({.threads = 2}, {0.02, 0.9f, 0.5f});
    for (std::int64_t g = 0; g < count; ++g) {
      const auto value = [&](const std::vector<float>& values, std::int64_t n, std::int64_t k) {
        return static_cast<double>(values[static_cast<std::size_t>(c.parameter.offset(g, n, k))]);
      };
      Matrix w(static_cast<std::size_t>(outputs * inputs)), m(w.size());
      const auto each = [&](const auto& f) {
        for (std::int64_t n = 0; n < outputs; ++n)
          for (std::int64_t k = 0; k < inputs; ++k) f(n, k, static_cast<std::size_t>(n * inputs + k));
      };
      each([&](auto n, auto k, auto at) { w[at] = value(c.master, n, k); });
      for (const std::vector<float>& gradient : c.gradients) {
        Matrix u(w.size());
        each([&](auto n, auto k, auto at) {
          const double scaled = factor * value(gradient, n, k);
          m[at] = beta * m[at] + (1 - beta) * scaled;
          u[at] = beta * m[at] + (1 - beta) * scaled;
        });
        const Matrix o = orthogonal(u, outputs, inputs);
        for (std::size_t at = 0; at < w.size(); ++at) w[at] -= rate * o[at];
      }
      LargestError error, momentum_error;
      each([&](auto n, auto k, auto at) {
        error.add(value(got.master, n, k), w[at]);
        momentum_error.add(value(got.momentum, n, k), m[at]);
      });
      EXPECT_LT(error.absolute(), 2e-6) << outputs << " x " << inputs;
      EXPECT_LT(momentum_error.absolute(), 1e-6);
    }
    // The factor alone changes nothing but the momentum's size: what is orthogonalised has norm 1.
    EXPECT_NE(c.run({.threads = 1}, {0.02, 0.9f, 1.0f}).momentum, got.momentum);
  }
}

TEST(Muon, BitsDependOnTheMatrixAlone) {
  for (const auto& [count, outputs, inputs] : {std::tuple<int, int, int>{1, 24, 700}, {1, 1100, 40}, {3, 33, 35}}) {
    const MuonCase c(count, outputs, inputs);
    const MuonParameters how{.learning_rate = 0.02, .beta = 0.95f, .factor = 0.7f};
    const MuonState want = c.run({.isa = InstructionSet::scalar, .threads = 1}, how);
    for (const InstructionSet isa : {InstructionSet::scalar, InstructionSet::avx2, InstructionSet::avx512}) {
      if (!machine_has(isa)) continue;
      for (const int threads : {1, 2, 3})
        for (const BackendKind kind : {BackendKind::cpu, BackendKind::deferred}) {
          const MuonState got = c.run({.kind = kind, .isa = isa, .threads = threads}, how);
          EXPECT_EQ(bits_of(got.master), bits_of(want.master)) << instruction_set_name(isa) << " " << threads;
          EXPECT_EQ(bits_of(got.momentum), bits_of(want.momentum));
        }
    }
    EXPECT_NE(bits_of(c.run({.threads = 1}, {.learning_rate = 0.02, .beta = 0.95f, .factor = 0.8f}).master), bits_of(want.master));
  }
}

// Everything that is no matrix, and the head and embedding, goes by AdamW at a rate of its own.
TEST(Muon, TheRestOfAModelIsAdamWs) {
  for (const char* config : {kGlm, kLlama, kQwen}) {
    const TrainBench m(config);
    const std::vector<TrainSequence> data = {sequences(m.model->facts().vocabulary)[0]};
    const auto stepped = [&](OptimizerFamily optimizer, double rate) {
      Runtime runtime({.threads = 2}, m.model, profile_by_name("cpu-f32"), 600);
      Trainer trainer(runtime, m.masters, {.accumulate = true, .optimizer = optimizer});
      for (int step = 0; step < 2; ++step) {
        trainer.forward_backward(data, {});
        trainer.optim_step({.learning_rate = step == 0 ? 0.0 : rate});  // one step from equal weights, with moments
      }
      return trainer.state().masters();
    };
    const WeightImages muon = stepped(*optimizer_named("dimuon"), 0.02), adam = stepped(adamw(), 0.02 * Muon::kAdamRate);
    int matrices = 0, rest = 0;
    for (std::size_t i = 0; i < muon.size(); ++i) {
      const Parameter& p = m.model->manifest().parameters()[i];
      if (!p.trained || p.indexer) continue;
      const bool matrix =
          p.layout == ParameterLayout::packed && p.outputs > 1 && p.inputs > 1 && !p.tied && static_cast<ParameterId>(i) != m.model->facts().head;
      EXPECT_EQ(bits_of(muon[i]) == bits_of(adam[i]), !matrix) << p.name;
      (matrix ? matrices : rest) += 1;
    }
    EXPECT_GT(matrices, 4);
    EXPECT_GT(rest, 2);
  }
}

}  // namespace
}  // namespace lockstep

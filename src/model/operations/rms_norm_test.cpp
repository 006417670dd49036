// A residual that is added where it is normed is the two operations: to observers, in every value and in every gradient, by their expressions.
#include "model/operations/rms_norm.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/philox.h"
#include "kernels/launch.h"
#include "model/observer.h"
#include "model/operations/add.h"
#include "model/operations/linear.h"
#include "model/runtime.h"

namespace lockstep {
namespace {

// Of its two heads of 20 the queries are as wide as its rows.
constexpr const char* kNormedModel = R"({
  "model_type": "llama", "vocab_size": 40, "hidden_size": 40, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 20,
  "max_position_embeddings": 64, "intermediate_size": 48, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false, "hidden_act": "silu"})";

struct NormedNames final : OperationObserver {
  void begin_forward(Backend&, const Batch&) override {}
  void operation(const Operation& done) override { names.push_back(std::string(done.name) + " " + std::string(done.parameter)); }
  std::vector<std::string> names;
};

struct NormedOutcome {
  std::vector<std::string> names;                  // of operations, as an observer sees them
  std::vector<std::vector<std::uint64_t>> hashes;  // of the sum, its norm and what comes of both, then of each parameter's gradient
};

ParameterId parameter_named(const Manifest& manifest, const std::string& name) {
  for (std::size_t i = 0; i < manifest.parameters().size(); ++i)
    if (manifest.parameters()[i].name == name) return static_cast<ParameterId>(i);
  ADD_FAILURE() << "no parameter " << name;
  return 0;
}

// Two sequences; `shared`: the second has rows of the first one, so that the tape has more rows than the forward.
std::vector<SequenceSlice> normed_slices(bool shared) {
  std::vector<SequenceSlice> slices(2);
  slices[0].tokens = {3, 1, 4, 1, 5, 9}, slices[0].pages = {0, 1};
  slices[1].tokens = {3, 1, 4, 1, 2}, slices[1].pages = {0, 2};
  if (shared) slices[1].shared = 4;
  return slices;
}

struct NormedBench {
  std::shared_ptr<const Model> model = make_model(Json::parse(kNormedModel));
  const Manifest& manifest = model->manifest();
  Runtime runtime{{.kind = BackendKind::traced, .threads = 1}, model, profile_by_name("cpu-f32"), 64};
  std::shared_ptr<const WeightSet> weights = make_weight_set(runtime.backend, manifest, initial_weights(manifest, 2, 0.2), runtime.profile, 1);
  KvCache cache{runtime.backend, model->cache_shapes(runtime.profile), runtime.profile, 4, 4};
  Batch batch;
  GradientSet gradients{runtime.backend, manifest, false};
  Tape tape{runtime.backend, &gradients};
  const ParameterId first = parameter_named(manifest, "model.layers.0.input_layernorm.weight");
  const ParameterId second = parameter_named(manifest, "model.layers.0.post_attention_layernorm.weight");
  const ParameterId square = parameter_named(manifest, "model.layers.0.self_attn.q_proj.weight");

  explicit NormedBench(bool shared) : batch(runtime.backend, normed_slices(shared), 4, true) {}
  // Random values, with the rows of the tape.
  Buffer gradient(std::int64_t cols, std::uint64_t seed = 4) {
    RandomSequence draws(seed, RandomStream::fuzz);
    std::vector<float> dy(static_cast<std::size_t>(batch.tape_count() * cols));
    for (float& v : dy) v = static_cast<float>(draws.uniform() - 0.5);
    return runtime.backend.device().upload(dy, batch.tape_count(), cols, MemoryCategory::activations);
  }
  std::vector<std::uint64_t> hashes(const View& v) { return runtime.backend.stream().read_hashes(v).get(); }
};

// sum = x + norm(x), and sum + linear(norm(sum)).
NormedOutcome run_normed(bool at_once, bool shared) {
  NormedBench bench(shared);
  NormedNames seen;
  bench.runtime.observer = &seen;
  Context ctx = bench.runtime.context(*bench.weights, bench.cache, bench.batch, {}, &bench.tape);
  const Tensor x = bench.model->embed(ctx), b = rms_norm(ctx, x, bench.first, 1e-5f);
  SumAndNorm made;
  if (at_once) {
    made = add_rms_norm(ctx, x, b, bench.second, 1e-5f);
  } else {
    made.sum = add(ctx, x, b);
    made.normed = rms_norm(ctx, made.sum, bench.second, 1e-5f);
  }
  const Tensor y = add(ctx, made.sum, linear(ctx, made.normed, bench.square));
  bench.tape.contribute(y.node, bench.gradient(y.view().cols));
  bench.tape.backward();
  NormedOutcome outcome{seen.names, {bench.hashes(made.sum.view()), bench.hashes(made.normed.view()), bench.hashes(y.view())}};
  for (std::size_t i = 0; i < bench.manifest.parameters().size(); ++i)
    outcome.hashes.push_back(bench.hashes(bench.gradients.gradient(static_cast<ParameterId>(i))));
  return outcome;
}

TEST(RmsNormOperation, OfASumIsTheTwoOperations) {
  for (const bool shared : {false, true}) {
    const NormedOutcome two = run_normed(false, shared), one = run_normed(true, shared);
    EXPECT_EQ(one.names, two.names);
    EXPECT_EQ(two.names.size(), 6u);  // embedding, norm, add, norm, linear, add
    ASSERT_EQ(one.hashes.size(), two.hashes.size());
    for (std::size_t i = 0; i < two.hashes.size(); ++i) EXPECT_TRUE(one.hashes[i] == two.hashes[i]) << "value " << i << (shared ? ", shared rows" : "");
    EXPECT_NE(two.hashes[0], two.hashes[1]);
  }
}

// y = x + norm(x): the gradient of x is dy + that of the norm, in this order, as if the tape had added what the norm's adjoint alone makes.
TEST(RmsNormOperation, ItsGradientIsAddedToTheResiduals) {
  for (const bool residual : {true, false}) {
    NormedBench bench(false);
    Context ctx = bench.runtime.context(*bench.weights, bench.cache, bench.batch, {}, &bench.tape);
    Tensor x = of_rows(bench.batch, bench.gradient(40, 5));
    x.node = bench.tape.new_node();
    const Tensor normed = rms_norm(ctx, x, bench.first, 1e-5f), y = residual ? add(ctx, x, normed) : normed;
    const Buffer dy = bench.gradient(40), of_norm = ctx.allocate_tape(40), both = ctx.allocate_tape(40);
    bench.tape.contribute(y.node, dy);
    bench.tape.backward();
    const Buffer dx = bench.tape.take(x.node);
    launch_rms_norm_backward(ctx, of_norm.view(), dy.view(), x.view(), bench.first, 1e-5f, 1);
    ctx.launch(&KernelTable::add, Add{both.view(), dy.view(), of_norm.view()});
    EXPECT_TRUE(bench.hashes(dx.view()) == bench.hashes(residual ? both.view() : of_norm.view())) << residual;
  }
}

}  // namespace
}  // namespace lockstep

// The proof of order: on the traced backend every number carries the hash of the expression that made it. A whole small model's
// forward and backward must have the same hashes with the tiles of every instruction set, any number of threads, any batch and
// micro-batch; and other ones with another leaf count.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/head/head.h"
#include "kernels/launch.h"
#include "model/runtime.h"
#include "system/golden_tools.h"

namespace lockstep {
namespace {

using Tokens = std::vector<std::int32_t>;
using Hashes = std::vector<std::uint64_t>;

struct Trace {
  std::vector<Hashes> hidden, logprob;  // by sequence
  std::vector<Hashes> gradient;         // by parameter; real elements, no padding
};

struct Setting {
  InstructionSet isa = InstructionSet::scalar;
  int threads = 1;
  std::string profile = "cpu-bf16w";
  std::vector<std::vector<std::size_t>> micro_batches = {{0, 1, 2}};  // which sequences, in which order
  bool checkpoint = false, index_loss = true, dense = false;
  std::int64_t page_size = 16;
  std::string family = "glm_moe_dsa";
};

const std::vector<Tokens>& sequences() {
  static const std::vector<Tokens> all = [] {
    RandomSequence draws(11, RandomStream::fuzz);
    return std::vector<Tokens>{random_tokens(draws, 19, 37), random_tokens(draws, 7, 37), random_tokens(draws, 12, 37)};
  }();
  return all;
}

std::shared_ptr<const Model> tiny_model(const std::string& family = "glm_moe_dsa") {
  static std::map<std::string, std::shared_ptr<const Model>> models;
  std::shared_ptr<const Model>& model = models[family];
  if (!model) model = make_model(tiny_config(family));
  return model;
}

Runtime traced_runtime(const Setting& s) {
  return Runtime({.kind = BackendKind::traced, .isa = s.isa, .threads = s.threads}, tiny_model(s.family), profile_by_name(s.profile), 64);
}

SequenceSlice slice_of(const Tokens& tokens, std::int64_t begin, std::int64_t end, std::int32_t first_page, std::int64_t page_size) {
  SequenceSlice slice{Tokens(tokens.begin() + begin, tokens.begin() + end), begin, {}};
  for (std::int64_t p = 0; p < end; p += page_size) slice.pages.push_back(first_page++);
  return slice;
}

template <class T>
std::vector<T> part(const std::vector<T>& all, std::int64_t begin, std::int64_t end) {
  return {all.begin() + begin, all.begin() + end};
}

// Forward, loss and backward of all sequences, micro-batch by micro-batch.
Trace trace(const Setting& s) {
  Runtime runtime = traced_runtime(s);
  Backend& backend = runtime.backend;
  Device& device = backend.device();
  const Manifest& manifest = runtime.model->manifest();
  const WeightImages images = golden_weights(manifest, 3);
  const auto weights = make_weight_set(backend, manifest, images, runtime.profile, 0);
  GradientSet gradients(backend, manifest, s.micro_batches.size() > 1);
  KvCache cache(backend, runtime.model->cache_shapes(runtime.profile), runtime.profile, 64 / s.page_size * 3, s.page_size);
  Trace result;
  result.hidden.resize(sequences().size());
  result.logprob.resize(sequences().size());
  for (const std::vector<std::size_t>& members : s.micro_batches) {
    std::vector<SequenceSlice> slices;
    std::vector<std::int32_t> targets;
    std::int32_t page = 0;
    for (std::size_t i : members) {
      const Tokens& tokens = sequences()[i];
      slices.push_back(slice_of(tokens, 0, static_cast<std::int64_t>(tokens.size()) - 1, page, s.page_size));
      page += static_cast<std::int32_t>(slices.back().pages.size());
      targets.insert(targets.end(), tokens.begin() + 1, tokens.end());
    }
    const Batch batch(backend, slices, s.page_size, true);
    ForwardOptions options{.dense_attention = s.dense, .index_loss = s.index_loss, .index_loss_weight = 0.125f, .checkpoint = s.checkpoint};
    Tape tape(backend, &gradients);
    Context ctx = runtime.context(*weights, cache, batch, options, &tape);
    const Tensor hidden = runtime.model->forward(ctx);
    const std::int64_t rows = batch.count();
    const auto output = [&](std::int64_t cols) { return device.allocate(DType::f32, rows, cols, MemoryCategory::activations); };
    const Buffer logprob = output(1), dx = output(hidden.view().cols);
    const Buffer target = device.upload(targets, rows, 1, MemoryCategory::activations);
    const Buffer weight = device.upload(std::vector<float>(static_cast<std::size_t>(rows), 0.25f), rows, 1, MemoryCategory::activations);
    const Buffer logits = device.allocate(DType::f32, std::max<std::int64_t>(1, rows / 2), runtime.model->facts().vocabulary, MemoryCategory::workspace);
    const Buffer log_sum = output(1), slope = output(1);
    HeadLoss head;
    head.logprob = logprob.view();
    head.flags = ctx.flags();
    head.x = hidden.view();
    head.w = ctx.packed(runtime.model->facts().head);
    head.target = target.view();
    head.objective.kind = LossKind::cross_entropy;
    head.objective.weight = weight.view();
    head.dx = dx.view();
    head.log_sum = log_sum.view();
    head.slope = slope.view();
    head.logits_chunk = logits.view();
    backend.launch(&KernelTable::head_loss, head);
    const Hashes of_hidden = backend.stream().read_hashes(hidden.view()).get(), of_logprob = backend.stream().read_hashes(logprob.view()).get();
    for (std::size_t m = 0; m < members.size(); ++m) {
      const std::int64_t begin = batch.row_begin()[m], end = batch.row_begin()[m + 1], cols = hidden.view().cols;
      result.hidden[members[m]] = part(of_hidden, begin * cols, end * cols);
      result.logprob[members[m]] = part(of_logprob, begin, end);
    }
    tape.contribute(hidden.node, dx);
    tape.backward();
    const ParameterId id = runtime.model->facts().head;
    const Buffer table_dy = tape.take_table_gradient();
    backend.launch(&KernelTable::head_weight, HeadWeight{gradients.gradient(id),
                                                         gradients.bins(id),
                                                         gradients.finish_at_once(),
                                                         head.x,
                                                         head.w,
                                                         0,
                                                         false,
                                                         head.target,
                                                         head.log_sum,
                                                         head.slope,
                                                         batch.rows().segment,
                                                         {},
                                                         {},
                                                         table_dy.view(),
                                                         batch.rows().token});
  }
  gradients.finish();
  for (std::size_t i = 0; i < manifest.parameters().size(); ++i) {
    const Parameter& p = manifest.parameters()[i];
    const Hashes all = backend.stream().read_hashes(gradients.gradient(static_cast<ParameterId>(i))).get();
    Hashes& mine = result.gradient.emplace_back();
    for (std::int64_t g = 0; g < p.count; ++g)
      for (std::int64_t n = 0; n < p.outputs; ++n)
        for (std::int64_t k = 0; k < p.inputs; ++k) mine.push_back(all[static_cast<std::size_t>(p.offset(g, n, k))]);
  }
  return result;
}

// Hidden states of sequence 0 as serving computes them: `chunk` rows a forward, the other sequences' rows beside some of them.
Hashes trace_serving(const Setting& s, std::int64_t chunk, bool neighbours) {
  Runtime runtime = traced_runtime(s);
  const auto weights = make_weight_set(runtime.backend, runtime.model->manifest(), golden_weights(runtime.model->manifest(), 3), runtime.profile, 0);
  KvCache cache(runtime.backend, runtime.model->cache_shapes(runtime.profile), runtime.profile, 64 / s.page_size * 3, s.page_size);
  const Tokens& tokens = sequences()[0];
  const std::int64_t n = static_cast<std::int64_t>(tokens.size()) - 1;
  Hashes hashes;
  for (std::int64_t begin = 0; begin < n; begin += chunk) {
    const std::int64_t end = std::min(n, begin + chunk);
    std::vector<SequenceSlice> slices;
    std::size_t mine = 0;
    const std::int64_t other = static_cast<std::int64_t>(sequences()[1].size());
    if (neighbours && begin < other) {
      slices.push_back(slice_of(sequences()[1], begin, std::min(other, end), static_cast<std::int32_t>(32 / s.page_size), s.page_size));
      mine = 1;
    }
    slices.push_back(slice_of(tokens, begin, end, 0, s.page_size));
    const Batch batch(runtime.backend, slices, s.page_size, false);
    Context ctx = runtime.context(*weights, cache, batch);
    const Tensor hidden = runtime.model->forward(ctx);
    const Hashes all = runtime.backend.stream().read_hashes(hidden.view()).get();
    const std::int64_t cols = hidden.view().cols;
    const Hashes own = part(all, batch.row_begin()[mine] * cols, batch.row_begin()[mine + 1] * cols);
    hashes.insert(hashes.end(), own.begin(), own.end());
  }
  return hashes;
}

std::size_t different(const Hashes& a, const Hashes& b) {
  if (a.size() != b.size()) return std::max(a.size(), b.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += a[i] != b[i];
  return count;
}

void expect_equal(const Trace& got, const Trace& want, const std::string& what, const std::string& family = "glm_moe_dsa") {
  for (std::size_t i = 0; i < want.hidden.size(); ++i) {
    EXPECT_EQ(different(got.hidden[i], want.hidden[i]), 0u) << what << ": hidden states of sequence " << i;
    EXPECT_EQ(different(got.logprob[i], want.logprob[i]), 0u) << what << ": log-probabilities of sequence " << i;
  }
  const Manifest& manifest = tiny_model(family)->manifest();
  for (std::size_t i = 0; i < want.gradient.size(); ++i) {
    if (!manifest.parameters()[i].trained) continue;
    EXPECT_EQ(different(got.gradient[i], want.gradient[i]), 0u) << what << ": gradient of " << manifest.parameters()[i].name;
  }
}

// Hashes that say something: a gradient that is made has many different ones.
void expect_alive(const Trace& t, const std::string& family = "glm_moe_dsa") {
  const Manifest& manifest = tiny_model(family)->manifest();
  for (std::size_t i = 0; i < t.gradient.size(); ++i) {
    if (!manifest.parameters()[i].trained) continue;
    Hashes sorted = t.gradient[i];
    std::sort(sorted.begin(), sorted.end());
    const auto distinct = std::unique(sorted.begin(), sorted.end()) - sorted.begin();
    EXPECT_GT(distinct, static_cast<std::ptrdiff_t>(sorted.size() / 4)) << manifest.parameters()[i].name;
  }
}

const Trace& reference() {
  static const Trace trace_of_reference = trace({});
  return trace_of_reference;
}

std::vector<InstructionSet> instruction_sets() {
  std::vector<InstructionSet> sets;
  for (InstructionSet isa : {InstructionSet::scalar, InstructionSet::avx2, InstructionSet::avx512})
    if (machine_has(isa)) sets.push_back(isa);
  return sets;
}

TEST(TracedModel, TilesAndThreadsChangeNoExpression) {
  expect_alive(reference());
  for (InstructionSet isa : instruction_sets())
    for (int threads : {1, 2}) {
      if (isa == InstructionSet::scalar && threads == 1) continue;
      expect_equal(trace({.isa = isa, .threads = threads}), reference(), fmt::format("{} tiles, {} threads", instruction_set_name(isa), threads));
    }
}

TEST(TracedModel, PackingMicroBatchesAndCheckpointingChangeNoExpression) {
  const InstructionSet wide = instruction_sets().back();
  expect_equal(trace({.isa = wide, .micro_batches = {{2, 0, 1}}}), reference(), "another order");
  expect_equal(trace({.isa = wide, .micro_batches = {{0}, {1}, {2}}}), reference(), "micro-batch 1");
  expect_equal(trace({.threads = 2, .micro_batches = {{1, 2}, {0}}, .checkpoint = true, .page_size = 4}), reference(),
               "micro-batch 2, checkpointed, pages of 4");
  expect_equal(trace({.isa = wide, .checkpoint = true, .page_size = 1}), reference(), "checkpointed, pages of 1");
}

TEST(TracedModel, DenseWarmUpChangesNoExpressionEither) {
  const Trace dense = trace({.dense = true});
  expect_equal(trace({.isa = instruction_sets().back(), .threads = 2, .micro_batches = {{2}, {1, 0}}, .dense = true}), dense, "dense");
  EXPECT_GT(different(dense.hidden[0], reference().hidden[0]), 0u) << "the selection is shorter than the context: dense attention differs";
}

TEST(TracedModel, ServingComputesTheExpressionsOfTraining) {
  const Hashes& training = reference().hidden[0];
  for (const auto& [chunk, neighbours] : {std::pair<std::int64_t, bool>{64, false}, {64, true}, {3, true}, {1, false}, {1, true}})
    for (InstructionSet isa : instruction_sets())
      EXPECT_EQ(different(trace_serving({.isa = isa, .threads = neighbours ? 2 : 1, .page_size = chunk == 3 ? 4 : 16}, chunk, neighbours), training), 0u)
          << "chunks of " << chunk << (neighbours ? " with neighbours" : "") << ", " << instruction_set_name(isa);
}

// The other families: in short what the tests above look at one by one.
class TracedFamily : public testing::TestWithParam<std::string> {};

void expect_one_expression(const std::string& family, const std::string& profile) {
  const InstructionSet wide = instruction_sets().back();
  const Trace want = trace({.profile = profile, .family = family});
  expect_alive(want, family);
  for (InstructionSet isa : instruction_sets())
    expect_equal(trace({.isa = isa, .threads = 2, .profile = profile, .family = family}), want, std::string(instruction_set_name(isa)), family);
  expect_equal(trace({.isa = wide, .profile = profile, .micro_batches = {{2}, {1, 0}}, .checkpoint = true, .page_size = 4, .family = family}), want,
               "micro-batches, checkpointed, pages of 4", family);
  for (const std::int64_t chunk : {64, 3, 1})
    EXPECT_EQ(different(trace_serving({.isa = wide, .threads = 2, .profile = profile, .page_size = 4, .family = family}, chunk, chunk != 64), want.hidden[0]),
              0u)
        << family << " served in chunks of " << chunk;
  EXPECT_GT(different(trace({.profile = "study-leaves", .family = family}).hidden[0], want.hidden[0]), 0u) << "control";
}

TEST_P(TracedFamily, HoldsToo) { expect_one_expression(GetParam(), "cpu-bf16w"); }

TEST(TracedModel, ExpandedLatentAttentionHoldsToo) {
  for (const std::string profile : {"cpu-bf16w-expanded", "cpu-f32-expanded"}) {
    expect_one_expression("deepseek_v3", profile);
    EXPECT_GT(different(trace({.profile = "cpu-bf16w", .family = "deepseek_v3"}).hidden[0], trace({.profile = profile, .family = "deepseek_v3"}).hidden[0]), 0u)
        << "absorbed";
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TracedFamily, testing::ValuesIn(all_families({"glm_moe_dsa"})), [](const auto& info) { return info.param; });

TEST(TracedModel, AnotherLeafCountIsAnotherExpression) {
  const Trace other = trace({.profile = "study-leaves"});
  for (std::size_t i = 0; i < other.hidden.size(); ++i) EXPECT_EQ(different(other.hidden[i], reference().hidden[i]), reference().hidden[i].size());
  std::size_t gradients = 0;
  for (std::size_t i = 0; i < other.gradient.size(); ++i) gradients += different(other.gradient[i], reference().gradient[i]) > 0;
  EXPECT_GT(gradients, other.gradient.size() / 2);
}

}  // namespace
}  // namespace lockstep

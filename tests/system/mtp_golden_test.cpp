// Multi-token prediction against NumPy in float64 (tests/golden/mtp, made by tools/make_mtp_goldens.py, which holds depth 1 against transformers):
// logits of depths 1 to 5 within 1e-5 of the largest value, gradients of training within 1e-4; and rows whose bits depend on nothing but their text.
#include <gtest/gtest.h>

#include "base/comparison_test_tools.h"
#include "kernels/launch.h"
#include "model/operations/head.h"
#include "system/golden_tools.h"
#include "train/mtp_trainer.h"

namespace lockstep {
namespace {

constexpr int kDepths = 5;

// The golden's text through the trunk and the layer, rows [begin, end) at a time.
struct MtpBench {
  Golden golden;
  Runtime runtime;
  const MtpLayer& layer;
  std::shared_ptr<const WeightSet> weights, of_layer;
  KvCache cache, layer_cache;
  const std::int64_t count;

  explicit MtpBench(const std::string& name, const std::string& profile = "cpu-f32", int threads = 2)
      : golden(load_golden("mtp/" + name)),
        runtime({.kind = BackendKind::cpu, .threads = threads}, golden.model, profile_by_name(profile)),
        layer(*golden.model->mtp()),
        weights(make_weight_set(runtime.backend, golden.model->manifest(), golden.weights, runtime.profile, 0)),
        of_layer(make_weight_set(runtime.backend, layer.manifest(), golden_weights(layer.manifest(), seed(name)), runtime.profile, 0)),
        cache(runtime.backend, golden.model->cache_shapes(runtime.profile), runtime.profile, 64, 16),
        layer_cache(runtime.backend, runtime.mtp_cache_shapes(), runtime.profile, 64, 16),
        count(static_cast<std::int64_t>(golden.tokens.size())) {}
  static std::uint64_t seed(const std::string& name) {
    return std::stoull(SafetensorsFile::open(golden_folder("mtp/" + name) / "golden.safetensors").metadata().at("seed"));
  }

  // Rows at positions [begin, end); the token of position p is that of p + ahead, where there is one.
  Batch batch(std::int64_t begin, std::int64_t end, std::int64_t ahead = 0) {
    SequenceSlice slice{{}, begin, {}};
    for (std::int64_t p = begin; p < end; ++p) slice.tokens.push_back(p + ahead < count ? golden.tokens[static_cast<std::size_t>(p + ahead)] : 0);
    for (std::int32_t page = 0; page * 16 < end; ++page) slice.pages.push_back(63 - page);
    return Batch(runtime.backend, {slice}, 16, false);
  }
  std::vector<float> read(const View& view) { return runtime.backend.stream().read(view).get(); }
  Tensor embedded(const Batch& rows) {
    Context ctx = runtime.context(*weights, cache, rows);
    return golden.model->embed(ctx);
  }
  Tensor trunk() {
    const Batch rows = batch(0, count);
    Context ctx = runtime.context(*weights, cache, rows);
    return golden.model->forward(ctx);
  }
  // Row r of the result is row r - 1 of x; row 0 is junk that is seen by nobody.
  Tensor behind(const Tensor& x) {
    std::vector<std::int32_t> rows;
    for (std::int64_t r = 0; r < x.view().rows; ++r) rows.push_back(static_cast<std::int32_t>(std::max<std::int64_t>(r - 1, 0)));
    const Buffer index = runtime.backend.device().upload(rows, x.view().rows, 1, MemoryCategory::activations);
    Tensor y{runtime.backend.device().allocate(DType::f32, x.view().rows, x.view().cols, MemoryCategory::activations)};
    runtime.backend.launch(&KernelTable::gather_rows, GatherRows{y.view(), x.view(), index.view()});
    return y;
  }
  Buffer part(const Tensor& x, std::int64_t first, std::int64_t n) {
    Buffer copy = runtime.backend.device().allocate(DType::f32, n, x.view().cols, MemoryCategory::activations);
    runtime.backend.stream().copy(copy.view(), x.view().row_range(first, n));
    return copy;
  }
  // Logits of rows [first, first + n) of hidden states.
  std::vector<float> logits(const Tensor& hidden, std::int64_t first, std::int64_t n) {
    std::vector<std::int32_t> rows;
    for (std::int64_t r = 0; r < n; ++r) rows.push_back(static_cast<std::int32_t>(first + r));
    const Batch one = batch(0, 1);
    Context ctx = runtime.context(*weights, cache, one);
    const Buffer index = runtime.backend.device().upload(rows, n, 1, MemoryCategory::activations);
    const Buffer z = ctx.allocate(DType::f32, n, golden.model->facts().vocabulary);
    head_logits(ctx, z.view(), hidden.view(), index.view(), golden.model->facts().head);
    return read(z.view());
  }

  enum class Later { right, other_keys, other_state, in_place };
  // The logits of each depth, in the rows of positions 1 .. T - depth.
  std::vector<std::vector<float>> depths(Later later = Later::right) {
    const Batch rows = batch(0, count);
    std::vector<std::vector<float>> result;
    MtpLayer::Keys keys;
    Tensor carried = behind(trunk());
    for (int depth = 1; depth <= kDepths; ++depth) {
      const std::int64_t ahead = depth - 1;
      Context ctx = runtime.mtp_context(*of_layer, layer_cache, rows, later == Later::in_place ? 0 : ahead);
      const Tensor tokens = embedded(batch(0, count, ahead));
      const bool first = depth == 1 || layer.shares_keys() == (later == Later::other_keys);
      const MtpLayer::Depth said = first ? layer.first(ctx, tokens, carried, keys) : layer.next(ctx, tokens, carried, keys);
      result.push_back(logits(said.normed, 1, count - depth));
      const Tensor& other = layer.normed_state() ? said.raw : said.normed;
      carried = later == Later::other_state ? other : layer.state(said);
    }
    return result;
  }
};

class MtpGolden : public testing::TestWithParam<std::string> {};

TEST_P(MtpGolden, DepthsAgreeWithNumPy) {
  MtpBench bench(GetParam());
  const auto got = bench.depths();
  for (int depth = 1; depth <= kDepths; ++depth)
    EXPECT_LE(relative_error(got[static_cast<std::size_t>(depth - 1)], bench.golden.tensors.at(fmt::format("depth{}", depth))), 1e-5) << depth;
  // What other engines do, and mistakes: from depth 2 on.
  for (const auto later : {MtpBench::Later::other_keys, MtpBench::Later::other_state, MtpBench::Later::in_place}) {
    MtpBench other(GetParam());
    if (later == MtpBench::Later::in_place && !other.layer.shares_keys()) continue;  // all rows of a depth turn alike, which shows nowhere
    const auto wrong = other.depths(later);
    EXPECT_LE(relative_error(wrong[0], bench.golden.tensors.at("depth1")), 1e-5);
    EXPECT_GT(relative_error(wrong[1], bench.golden.tensors.at("depth2")), 1e-4) << static_cast<int>(later);
  }
}

// Guesses of a layer whose depths share nothing, as an engine makes them: each writes where its token stands and sees what stands in the cache.
TEST(MtpGoldenGuesses, OfDepthsThatShareNothingAgreeWithNumPy) {
  constexpr std::int64_t kFrom = 9;  // GUESSED_FROM of tools/make_mtp_goldens.py
  for (const std::int64_t written : {kFrom, kFrom - 3}) {
    MtpBench bench("own-keys");
    const Tensor before = bench.behind(bench.trunk());
    const Batch known = bench.batch(0, written);
    Context entering = bench.runtime.mtp_context(*bench.of_layer, bench.layer_cache, known, 0);
    bench.layer.enter(entering, bench.embedded(known), Tensor{bench.part(before, 0, written)});
    Tensor carried{bench.part(before, kFrom, 1)};
    for (int depth = 1; depth <= kDepths; ++depth) {
      const Batch row = bench.batch(kFrom + depth - 1, kFrom + depth);
      Context ctx = bench.runtime.mtp_context(*bench.of_layer, bench.layer_cache, row, 0);
      const MtpLayer::Depth said = bench.layer.own_depth(ctx, bench.embedded(row), carried);
      carried = bench.layer.state(said);
      const double error = relative_error(bench.logits(said.normed, 0, 1), bench.golden.tensors.at(fmt::format("guess{}", depth)));
      if (written == kFrom) EXPECT_LE(error, 1e-5) << depth;
      else EXPECT_GT(error, 1e-4) << "the control, without some keys: " << depth;
    }
  }
}

// The bits of depth 1's rows, and what stands in the cache for them, are the same however the text is cut, and on any threads.
TEST_P(MtpGolden, RowsDependOnTheirTextAlone) {
  for (const char* profile : {"cpu-f32", "cpu-bf16w"}) {
    std::vector<std::vector<float>> normed, entries;
    for (const auto& [step, threads] : std::vector<std::pair<std::int64_t, int>>{{1000, 2}, {1000, 1}, {7, 2}, {1, 1}}) {
      MtpBench bench(GetParam(), profile, threads);
      const Tensor before = bench.behind(bench.trunk());
      std::vector<float> rows;
      for (std::int64_t begin = 0; begin < bench.count; begin += step) {
        const std::int64_t end = std::min(bench.count, begin + step);
        const Batch batch = bench.batch(begin, end);
        Context ctx = bench.runtime.mtp_context(*bench.of_layer, bench.layer_cache, batch, 0);
        // A slice of the trunk's rows, in a buffer of its own.
        Tensor hidden{bench.runtime.backend.device().allocate(DType::f32, end - begin, before.view().cols, MemoryCategory::activations)};
        bench.runtime.backend.stream().copy(hidden.view(), before.view().row_range(begin, end - begin));
        MtpLayer::Keys keys;
        const std::vector<float> part = bench.read(bench.layer.first(ctx, bench.embedded(batch), hidden, keys).normed.view());
        rows.insert(rows.end(), part.begin() + (begin == 0 ? before.view().cols : 0), part.end());  // but position 0's
      }
      normed.push_back(rows);
      const View entry = bench.layer_cache.layers[0].entry.view();
      std::vector<float> own;
      for (std::int64_t p = 1; p < bench.count; ++p) {
        const std::vector<float> one = bench.read(entry.row_range((63 - p / 16) * 16 + p % 16, 1));
        own.insert(own.end(), one.begin(), one.end());
      }
      entries.push_back(own);
    }
    for (std::size_t i = 1; i < normed.size(); ++i) {
      EXPECT_EQ(normed[i], normed[0]) << profile << ", way " << i;
      EXPECT_EQ(entries[i], entries[0]) << profile << ", way " << i;
    }
  }
}

// Rows that only enter the cache leave what depth 1 leaves there: entries and index keys.
TEST_P(MtpGolden, RowsThatEnterLeaveTheSameEntries) {
  std::vector<std::vector<float>> left;
  for (const bool enters : {false, true}) {
    MtpBench bench(GetParam(), "cpu-bf16w");
    const Tensor before = bench.behind(bench.trunk());
    const Batch batch = bench.batch(0, bench.count);
    Context ctx = bench.runtime.mtp_context(*bench.of_layer, bench.layer_cache, batch, 0);
    MtpLayer::Keys keys;
    if (enters) bench.layer.enter(ctx, bench.embedded(batch), before);
    else bench.layer.first(ctx, bench.embedded(batch), before, keys);
    const KvCache::Layer& layer = bench.layer_cache.layers[0];
    left.push_back(bench.read(layer.entry.view()));
    if (!layer.index_key) continue;
    const std::vector<float> index_keys = bench.read(layer.index_key.view());
    left.back().insert(left.back().end(), index_keys.begin(), index_keys.end());
  }
  EXPECT_EQ(left[1], left[0]);
  EXPECT_TRUE(std::any_of(left[0].begin(), left[0].end(), [](float x) { return x != 0; }));
}

// The loss and its gradient by torch's autograd: depths that share the layer and depth 1's keys, the model given.
TEST_P(MtpGolden, TrainingAgreesWithAutograd) {
  const Golden golden = load_golden("mtp/" + GetParam());
  const Manifest& manifest = golden.model->mtp()->manifest();
  Runtime runtime({.kind = BackendKind::cpu, .threads = 2}, golden.model, profile_by_name("cpu-f32"));
  const auto weights = make_weight_set(runtime.backend, golden.model->manifest(), golden.weights, runtime.profile, 0);
  MtpTrainer trainer(runtime, golden_weights(manifest, MtpBench::seed(GetParam())), {.depths = kDepths}, {});
  const MtpResult result = trainer.forward_backward(*weights, {TrainSequence::next_token(golden.tokens)});
  const double loss = std::stod(SafetensorsFile::open(golden_folder("mtp/" + GetParam()) / "golden.safetensors").metadata().at("loss"));
  EXPECT_NEAR(result.loss, loss, 1e-5 * loss);
  const WeightImages gradients = trainer.gradient_images();
  int compared = 0;
  for (const FileTensor& file : manifest.files()) {
    std::vector<float> values(static_cast<std::size_t>(file.size()));
    manifest.gather(file, gradients, values.data());
    const auto expected = golden.tensors.find("grad." + file.name);
    if (expected == golden.tensors.end() || std::all_of(expected->second.begin(), expected->second.end(), [](float x) { return x == 0; })) {
      for (const float v : values) ASSERT_EQ(v, 0.0f) << file.name;
      continue;
    }
    EXPECT_LE(relative_error(values, expected->second), 1e-4) << file.name;
    ++compared;
  }
  EXPECT_GE(compared, 20);
}

// What stands in position 0's row is seen by no other row; what stands in position 1's is.
TEST_P(MtpGolden, PositionZeroIsSeenByNobody) {
  const auto rows_with = [&](std::int64_t spoilt) {
    MtpBench bench(GetParam());
    const Tensor before = bench.behind(bench.trunk());
    if (spoilt >= 0) bench.runtime.backend.stream().fill_zero(before.view().row_range(spoilt, 1));
    const Batch batch = bench.batch(0, bench.count);
    Context ctx = bench.runtime.mtp_context(*bench.of_layer, bench.layer_cache, batch, 0);
    MtpLayer::Keys keys;
    const std::vector<float> all = bench.read(bench.layer.first(ctx, bench.embedded(batch), before, keys).normed.view());
    return std::vector<float>(all.begin() + 2 * before.view().cols, all.end());  // from position 2 on
  };
  const std::vector<float> plain = rows_with(-1);
  EXPECT_EQ(rows_with(0), plain);
  EXPECT_NE(rows_with(1), plain);
}

INSTANTIATE_TEST_SUITE_P(Configs, MtpGolden, testing::Values("sparse", "own-keys", "unnormed", "dense-range", "groups"), [](const auto& info) {
  std::string name = info.param;
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
});

}  // namespace
}  // namespace lockstep

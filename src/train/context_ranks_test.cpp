// A step over context-parallel ranks, which have pieces of each long sequence, has the bits of one rank: log-probabilities, losses, gradients, masters.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/launch.h"
#include "model/batch.h"
#include "train/losses.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

// Longer contexts than the models' own.
std::string long_context(std::string config) {
  const std::string key = "\"max_position_embeddings\": ";
  const std::size_t at = config.find(key) + key.size();
  return config.replace(at, config.find(',', at) - at, "8192");
}

// Sequences of these lengths, with all that the losses read.
std::vector<TrainSequence> texts(std::int64_t vocabulary, const std::vector<int>& lengths) {
  RandomSequence draws(5, RandomStream::fuzz);
  std::vector<TrainSequence> data;
  for (const int length : lengths) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(length) + 1);
    for (auto& token : tokens) token = static_cast<std::int32_t>(draws.below(static_cast<std::uint32_t>(vocabulary)));
    TrainSequence& d = data.emplace_back(TrainSequence::next_token(tokens));
    for (float& w : d.weights) w = draws.below(4) == 0 ? 0.0f : static_cast<float>(draws.uniform());
    for (std::size_t i = 0; i < d.targets.size(); ++i) {
      d.advantages.push_back(static_cast<float>(draws.uniform()) - 0.5f);
      d.old_logprobs.push_back(-4.8f - 0.3f * static_cast<float>(draws.uniform()));
    }
  }
  return data;
}

struct Case {
  RankLayout ranks;
  std::string profile = "cpu-f32";
  BackendKind backend = BackendKind::cpu;
  bool indexer = false, checkpoint = false, share = false, declared = false;
  std::int64_t micro_batch = 0;
  LossOptions loss = {};
};

struct Outcome {
  ForwardBackwardResult result;
  std::vector<std::vector<float>> scores;
  WeightImages gradients, masters;
  double norm = 0;
  ForwardCounts work;
};

Outcome run(const TrainBench& bench, const Case& c, const std::vector<TrainSequence>& data) {
  Runtime runtime({.kind = c.backend, .threads = 2}, bench.model, profile_by_name(c.profile), 8192);
  Trainer trainer(runtime, bench.masters,
                  {.micro_batch = c.micro_batch,
                   .checkpoint_activations = c.checkpoint,
                   .share_prefixes = c.share,
                   .declared_prefixes = c.declared,
                   .train_indexer = c.indexer,
                   .ranks = c.ranks},
                  std::make_shared<RankRuntimes>(runtime, c.ranks));
  Outcome outcome;
  outcome.scores = trainer.score(data);
  outcome.result = trainer.forward_backward(data, c.loss, {.index_loss = c.indexer});
  outcome.gradients = trainer.gradient_images();
  outcome.norm = trainer.optim_step({.weight_decay = 0.1, .router_bias_rate = 1e-3}).gradient_norm;
  outcome.masters = trainer.state().all().masters;
  outcome.work = trainer.ranks().work();
  return outcome;
}

void expect_same(const Manifest& manifest, const Outcome& got, const Outcome& want, const std::string& what) {
  SCOPED_TRACE(what);
  EXPECT_TRUE(got.scores == want.scores);
  EXPECT_TRUE(got.result.logprobs == want.result.logprobs);
  EXPECT_TRUE(got.result.entropies == want.result.entropies);
  EXPECT_TRUE(got.result.losses == want.result.losses);
  EXPECT_TRUE(got.result.marks == want.result.marks);
  EXPECT_EQ(got.result.loss, want.result.loss);
  EXPECT_EQ(got.result.index_loss, want.result.index_loss);
  EXPECT_EQ(got.result.rows, want.result.rows);
  EXPECT_EQ(got.result.scored, want.result.scored);
  EXPECT_EQ(got.result.gradient_tokens, want.result.gradient_tokens);
  EXPECT_EQ(got.result.gradient_sequences, want.result.gradient_sequences);
  EXPECT_EQ(got.result.metrics, want.result.metrics);
  EXPECT_EQ(got.norm, want.norm);
  EXPECT_EQ(difference(manifest, got.gradients, want.gradients), "") << "gradients";
  EXPECT_EQ(difference(manifest, got.masters, want.masters), "") << "masters";
}

class ContextRanks : public ::testing::TestWithParam<const char*> {};

// Two pieces a rank: of 4 blocks of positions or more for two ranks, of 6 or more for three; shorter sequences are whole.
TEST_P(ContextRanks, PiecesHaveTheBitsOfOneRank) {
  const TrainBench bench(long_context(GetParam()));
  const std::vector<TrainSequence> data = texts(bench.model->facts().vocabulary, {40, 1600, 2600, 700});
  for (const std::string profile : {"cpu-f32", "cpu-bf16w"}) {
    const Outcome want = run(bench, {.profile = profile}, data);
    for (const int cp : profile == "cpu-f32" ? std::vector<int>{2, 3} : std::vector<int>{3}) {
      const Outcome got = run(bench, {.ranks = {.cp = cp}, .profile = profile}, data);
      expect_same(bench.model->manifest(), got, want, fmt::format("{}, cp={}", profile, cp));
      EXPECT_EQ(got.work, want.work) << profile << ", cp=" << cp;
    }
  }
}

TEST_P(ContextRanks, SoDoLayoutsWithTheOtherKinds) {
  const TrainBench bench(long_context(GetParam()));
  const std::vector<TrainSequence> data = texts(bench.model->facts().vocabulary, {1600, 90, 1700, 30});
  const Outcome want = run(bench, {.profile = "cpu-bf16w"}, data);
  for (const RankLayout& ranks : {RankLayout{.tp = 2, .cp = 2},
                                  {.dp = 2, .cp = 2},
                                  {.ep = 2, .pp = 2, .cp = 2},
                                  {.tp = 2, .dp = 2, .ep = 2, .pp = 2, .cp = 2},
                                  {.cp = 2, .shard = RankShard::weights},
                                  {.tp = 2, .dp = 2, .ep = 2, .pp = 2, .cp = 2, .shard = RankShard::weights}})
    expect_same(bench.model->manifest(), run(bench, {.ranks = ranks, .profile = "cpu-bf16w"}, data), want, ranks.text());
  expect_same(bench.model->manifest(),
              run(bench, {.ranks = {.cp = 2}, .profile = "cpu-bf16w", .backend = BackendKind::deferred, .checkpoint = true, .micro_batch = 1}, data), want,
              "deferred, checkpointed, micro-batches of one");
}

// Ratios of whole sequences need all positions' log-probabilities. Losses, models and numbers of ranks meet in pairs; each text is as long as its ranks need.
TEST_P(ContextRanks, LossesOverWholeSequencesHaveTheBitsOfOneRank) {
  const TrainBench bench(long_context(GetParam()));
  const bool other_way = GetParam() == std::string(kLlama);
  for (const std::string loss : {"gspo", "ppo"}) {
    const int cp = (loss == "gspo") != other_way ? 2 : 3;
    const std::vector<TrainSequence> data = texts(bench.model->facts().vocabulary, {cp == 2 ? 1600 : 2600, 50});
    const Outcome want = run(bench, {.loss = loss_by_name(loss)}, data);
    expect_same(bench.model->manifest(), run(bench, {.ranks = {.cp = cp}, .loss = loss_by_name(loss)}, data), want, fmt::format("{}, cp={}", loss, cp));
  }
}

// Equal prefixes, which one rank computes once; and declared ones, which stay on a rank with their group.
TEST_P(ContextRanks, SharedPrefixesHaveTheBitsOfOneRank) {
  const TrainBench bench(long_context(GetParam()));
  std::vector<TrainSequence> data = texts(bench.model->facts().vocabulary, {1600, 1650, 60});
  std::copy_n(data[0].tokens.begin(), 1000, data[1].tokens.begin());
  for (const bool declared : {false, true}) {
    if (declared)
      for (const std::size_t s : {std::size_t{0}, std::size_t{1}}) {
        data[s].prefix_group = 0, data[s].shared_prefix = 1000;
        std::fill_n(data[s].targets.begin(), 1000, -1);
      }
    const Outcome want = run(bench, {.share = true, .declared = declared}, data);
    expect_same(bench.model->manifest(), run(bench, {.ranks = {.cp = 2}, .share = true, .declared = declared}, data), want, declared ? "declared" : "equal");
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ContextRanks, ::testing::Values(kGlm, kLlama, kQwen));

// Keys that leave a window never meet the queries of later pieces.
TEST(ContextWindows, PiecesHaveTheBitsOfOneRank) {
  std::string config = long_context(kLlama);
  config.replace(config.find("\"llama\""), 7, "\"mistral\", \"sliding_window\": 700");
  const TrainBench bench(config);
  const std::vector<TrainSequence> data = texts(bench.model->facts().vocabulary, {1600, 2600});
  const Outcome want = run(bench, {}, data);
  for (const int cp : {2, 3}) expect_same(bench.model->manifest(), run(bench, {.ranks = {.cp = cp}}, data), want, fmt::format("cp={}", cp));
}

TEST(ContextIndexer, ItsLossHasTheBitsOfOneRank) {
  const TrainBench bench(long_context(kGlm));
  const std::vector<TrainSequence> data = texts(bench.model->facts().vocabulary, {1600, 40, 2600});
  for (const std::string profile : {"cpu-f32", "cpu-bf16w"}) {
    const Outcome want = run(bench, {.profile = profile, .indexer = true}, data);
    for (const int cp : profile == "cpu-f32" ? std::vector<int>{2, 3} : std::vector<int>{3})
      expect_same(bench.model->manifest(), run(bench, {.ranks = {.cp = cp}, .profile = profile, .indexer = true}, data), want,
                  fmt::format("{}, cp={}", profile, cp));
  }
}

// Attention's backward of one sequence of random numbers, whole and in two pieces of as many positions.
class TwoPieces {
 public:
  TwoPieces(const BackendOptions& options, std::int64_t length) : backend_(options), length_(length) {}
  std::int64_t edge() const { return length_ / 2; }
  Buffer zeros() { return backend_.device().allocate_zero(DType::f32, length_, kColumns, MemoryCategory::activations); }
  // Of a piece, 0 or 1; -1: of the whole sequence.
  void launch(const Buffer& dq, const Buffer& dentry, int piece, bool continues) {
    Rows rows = piece < 0 ? whole_.tape_rows() : cut_.tape_rows();
    if (piece >= 0)
      rows.sequence_begin = rows.sequence_begin.row_range(piece, 2), rows.first = first_.view().row_range(piece, 1), rows.key_begin = key_begin_.view();
    AttentionBackward op{dq.view(), dentry.view(), dout_.view(), o_.view(), log_sum_.view(), q_.view(), cache_.view(), {}, {}, rows, shape_};
    op.continues = continues;
    backend_.launch(&KernelTable::attention_backward, op);
  }
  // Adds the sums of the first piece to those of the second, of the keys that both see.
  void join(const Buffer& second, const Buffer& first) {
    const View into = second.view().row_range(0, edge());
    backend_.launch(&KernelTable::add, Add{into, first.view().row_range(0, edge()), into});
  }
  std::vector<float> values(const Buffer& b) { return backend_.stream().read(b.view()).get(); }
  std::vector<std::uint64_t> hashes(const Buffer& b) { return backend_.stream().read_hashes(b.view()).get(); }

 private:
  static constexpr std::int64_t kHeads = 4, kColumns = 64, kPage = 16;
  Buffer random() {
    std::vector<float> values(static_cast<std::size_t>(length_ * kColumns));
    for (float& v : values) v = static_cast<float>(draws_.uniform()) - 0.5f;
    return backend_.device().upload(values, length_, kColumns, MemoryCategory::activations);
  }
  Buffer ints(const std::vector<std::int32_t>& values) { return backend_.device().upload(values, std::ssize(values), 1, MemoryCategory::activations); }
  std::vector<SequenceSlice> slices(bool in_pieces) const {
    std::vector<SequenceSlice> all(1);
    all[0].tokens.assign(static_cast<std::size_t>(length_), 1);
    for (std::int32_t page = 0; page < length_ / kPage; ++page) all[0].pages.push_back(page);
    if (!in_pieces) return all;
    all.push_back(all[0]);
    for (SequenceSlice& slice : all) slice.tokens.resize(static_cast<std::size_t>(edge())), slice.piece = true;
    all[1].begin = edge();
    return all;
  }

  Backend backend_;
  const std::int64_t length_;
  const AttentionShape shape_{.heads = kHeads, .kv_heads = 2, .key = 16, .value = 16, .scale = 0.25f};
  RandomSequence draws_{11, RandomStream::fuzz};
  const Buffer q_ = random(), dout_ = random(), o_ = random(), cache_ = random();
  const Buffer log_sum_ =
      backend_.device().upload(std::vector<float>(static_cast<std::size_t>(length_ * kHeads), 6.0f), length_, kHeads, MemoryCategory::activations);
  const Batch whole_{backend_, slices(false), kPage, true}, cut_{backend_, slices(true), kPage, true};
  const Buffer first_ = ints({0, static_cast<std::int32_t>(length_ / 2)}), key_begin_ = ints({0});
};

// The control: a sum over queries that begins anew at the edge of a piece, and is then added, has other bits than the sum that goes on.
TEST(ContextControl, ASumBegunAnewIsSeen) {
  TwoPieces pieces({.threads = 2}, 1024);
  const Buffer dq = pieces.zeros(), dentry = pieces.zeros(), dq_cut = pieces.zeros(), continued = pieces.zeros();
  pieces.launch(dq, dentry, -1, false);
  for (const int piece : {0, 1}) pieces.launch(dq_cut, continued, piece, true);
  EXPECT_TRUE(pieces.values(dq_cut) == pieces.values(dq));
  EXPECT_TRUE(pieces.values(continued) == pieces.values(dentry));
  const Buffer first = pieces.zeros(), anew = pieces.zeros(), dq_anew = pieces.zeros();
  pieces.launch(dq_anew, anew, 1, false);
  pieces.launch(dq_anew, first, 0, true);
  pieces.join(anew, first);
  EXPECT_FALSE(pieces.values(anew) == pieces.values(dentry));
}

// Not the values alone: the sums of a cut sequence are the expressions of the whole one, in every query and key. Those of the control are others for each
// key that both pieces see, and for no other.
TEST(ContextTraced, PiecesHaveTheExpressionsOfTheWhole) {
  TwoPieces pieces({.kind = BackendKind::traced, .threads = 1}, 256);
  const Buffer dq = pieces.zeros(), dentry = pieces.zeros(), dq_cut = pieces.zeros(), continued = pieces.zeros();
  pieces.launch(dq, dentry, -1, false);
  for (const int piece : {0, 1}) pieces.launch(dq_cut, continued, piece, true);
  const std::vector<std::uint64_t> want = pieces.hashes(dentry);
  EXPECT_TRUE(pieces.hashes(dq_cut) == pieces.hashes(dq));
  EXPECT_TRUE(pieces.hashes(continued) == want);
  const Buffer first = pieces.zeros(), anew = pieces.zeros(), dq_anew = pieces.zeros();
  pieces.launch(dq_anew, anew, 1, false);
  pieces.launch(dq_anew, first, 0, true);
  pieces.join(anew, first);
  const std::vector<std::uint64_t> got = pieces.hashes(anew);
  const auto seen_by_both = want.begin() + std::ssize(want) / 2;
  EXPECT_TRUE(std::equal(seen_by_both, want.end(), got.begin() + std::ssize(got) / 2));
  std::int64_t other = 0;
  for (std::size_t i = 0; i < want.size() / 2; ++i) other += got[i] != want[i];
  EXPECT_EQ(other, std::ssize(want) / 2);
}

}  // namespace
}  // namespace lockstep

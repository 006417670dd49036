// A step tells what is wanted of any rows of any slices: the same bits that the rows have when they are asked for one by one.
#include "engine/engine_test_tools.h"

namespace lockstep {
namespace {

TEST(StepWants, FindsRowsBySliceAndColumn) {
  std::vector<PlannedSlice> plan(3);
  for (std::size_t i = 0; i < plan.size(); ++i) plan[i].count = 4 + static_cast<std::int64_t>(i);
  StepWants wants;
  for (int round = 0; round < 2; ++round) {  // what was wanted before is forgotten
    wants.begin(plan);
    wants.want(Column::sampled, 3);
    wants.end_slice();
    for (const int row : {0, 2, 3}) wants.want(Column::scored, row, 2);
    wants.end_slice();
    wants.want(Column::scored, 5, 3);
    wants.want(Column::sampled, 1);
    wants.want(Column::sampled, 4);
    wants.end_slice();
  }
  EXPECT_TRUE(wants.of(0, Column::scored).empty());
  const StepWants::Rows second = wants.of(1, Column::scored), third = wants.of(2, Column::scored);
  EXPECT_EQ(std::vector<std::int32_t>(second.rows.begin(), second.rows.end()), (std::vector<std::int32_t>{0, 2, 3}));
  EXPECT_EQ(second.first_cell, 0);
  EXPECT_EQ(third.first, 3);
  EXPECT_EQ(third.first_cell, 6);
  EXPECT_EQ(third.width, 3);
  EXPECT_EQ(wants.cells(Column::scored), 9);
  EXPECT_EQ(wants.widest(Column::scored), 3);
  EXPECT_EQ(wants.of(2, Column::sampled).size(), 2u);
  EXPECT_EQ(wants.of(2, Column::sampled).first, 1);
  EXPECT_EQ(wants.rows(Column::hidden), 0);
  EXPECT_EQ(wants.row_begin(2), 9);
}

// Sequences whose every token is known, with all that a request may ask for.
std::vector<Sequence> known_sequences(std::int64_t vocabulary) {
  RandomSequence draws(4, RandomStream::fuzz);
  std::vector<Sequence> all(3);
  for (std::size_t i = 0; i < all.size(); ++i) {
    Sequence& s = all[i];
    s.id = i + 1;
    s.tokens = random_tokens(draws, 70 + 9 * static_cast<std::int64_t>(i), vocabulary);
    s.prompt_length = 2;  // the rest is a draft
    s.tells_experts = true;
    s.sampling = {
        .temperature = 0.9f, .top_p = 0.95f, .repetition_penalty = 1.3f, .frequency_penalty = 0.4f, .seed = 5 + i, .max_tokens = 100, .top_logprobs = 2};
    s.prompt_targets_per_row = static_cast<std::int64_t>(i);
    s.prompt_draws = 1 + static_cast<std::int64_t>(i);
    for (std::int64_t t = 0; t < s.known() * s.prompt_targets_per_row; ++t)
      s.prompt_targets.push_back(static_cast<std::int32_t>(draws.below(static_cast<std::uint32_t>(vocabulary))));
    s.adjustments.begin(s.sampling, std::span<const std::int32_t>(s.tokens).first(2));
  }
  return all;
}

// Everything that one row may be asked for, as words.
using RowWords = std::vector<std::uint32_t>;
void add_word(RowWords& words, float x) { words.push_back(std::bit_cast<std::uint32_t>(x)); }
void add_words(RowWords& words, const std::vector<TokenLogprob>& top) {
  for (const TokenLogprob& t : top) words.push_back(static_cast<std::uint32_t>(t.id)), add_word(words, t.logprob);
}

// Runs one step over all rows of the sequences and returns what each wanted row is told, by slice. `wanted[i]`: ascending.
std::vector<std::vector<RowWords>> told_of(Plant& plant, const std::vector<std::vector<std::int32_t>>& wanted) {
  std::vector<Sequence> all = known_sequences(plant.runtime.model->facts().vocabulary);
  const EngineOptions options{.page_size = 8, .cache_pages = 60, .max_batch_rows = 512, .prefill_chunk = 512};
  EngineCounters counters;
  Scheduler scheduler(options, options.cache_pages, counters);
  for (Sequence& s : all) scheduler.add(s);
  const std::vector<PlannedSlice> plan = scheduler.plan();
  StepWants wants;
  wants.begin(plan);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const Sequence& s = *plan[i].sequence;
    for (const std::int32_t row : wanted[i]) {
      wants.want(Column::sampled, row);
      wants.want(Column::sampled_top, row, 2);
      wants.want(Column::experts, row, plant.runtime.model->facts().expert_shape().row());
      wants.want(Column::hidden, row);
      if (row + 1 == plan[i].count) continue;  // nothing follows it
      wants.want(Column::scored, row, scored_columns(s));
      wants.want(Column::scored_top, row, 2);
      wants.want(Column::drawn, row, s.prompt_draws);
    }
    wants.end_slice();
  }
  RankSteps steps(plant.runtime, options);
  steps.set_weights(plant.weights);
  StepResult result;
  steps.run(plan, wants, result);
  std::vector<std::vector<RowWords>> told(plan.size());
  for (std::size_t i = 0; i < plan.size(); ++i)
    for (std::size_t at = 0; at < wanted[i].size(); ++at) {
      RowWords& words = told[i].emplace_back();
      const StepResult::Sampled& sampled = result.sampled(i)[at];
      EXPECT_EQ(sampled.flags, 0);
      words.push_back(static_cast<std::uint32_t>(sampled.token));
      add_word(words, sampled.raw_logprob), add_word(words, sampled.sampling_logprob);
      add_words(words, result.sampled_top(i)[at]);
      words.insert(words.end(), result.experts(i)[at].begin(), result.experts(i)[at].end());
      const auto hidden = result.hidden(i);
      const std::size_t width = hidden.size() / wanted[i].size();
      for (const float x : hidden.subspan(at * width, width)) add_word(words, x);
      if (wanted[i][at] + 1 == plan[i].count) continue;
      for (const float x : result.scored(i, at)) add_word(words, x);
      add_words(words, result.scored_top(i)[at]);
      for (const TokenLogprob& t : result.drawn(i, at)) add_words(words, {t});
    }
  return told;
}

TEST(Step, AnyRowsOfAnySlicesHaveTheBitsThatTheyHaveAmongAll) {
  Plant plant("sharing", "cpu-bf16w", {.threads = 1});
  ASSERT_GT(plant.runtime.model->facts().expert_shape().row(), 0);
  std::vector<std::vector<std::int32_t>> every;
  for (const Sequence& s : known_sequences(plant.runtime.model->facts().vocabulary)) {
    every.emplace_back();
    for (std::int32_t row = 0; row < s.known(); ++row) every.back().push_back(row);
  }
  for (auto& rows : every) rows.erase(rows.begin());  // a row before the last accepted token's samples nothing
  const auto all = told_of(plant, every);
  EXPECT_NE(all[0][3], all[0][4]);
  RandomSequence draws(8, RandomStream::fuzz);
  for (int round = 0; round < 4; ++round) {
    std::vector<std::vector<std::int32_t>> some(every.size());
    for (std::size_t i = 0; i < every.size(); ++i)
      for (const std::int32_t row : every[i])
        if (round == 0 ? row > 60 : draws.below(3) == 0) some[i].push_back(row);
    const auto told = told_of(plant, some);
    for (std::size_t i = 0; i < some.size(); ++i)
      for (std::size_t at = 0; at < some[i].size(); ++at)
        EXPECT_EQ(told[i][at], all[i][static_cast<std::size_t>(some[i][at]) - 1]) << "slice " << i << ", row " << some[i][at];
  }
}

// What a draft's rows sample is what the engine samples one token at a time, penalties included, as long as the draft is right.
TEST(Step, RowsOfADraftSampleWhatDecodingDoes) {
  Plant plant("sharing", "cpu-bf16w", {.threads = 1});
  std::vector<std::vector<std::int32_t>> rows;
  std::vector<Generation> decoded;
  Engine engine(plant.runtime, plant.weights);
  for (const Sequence& s : known_sequences(plant.runtime.model->facts().vocabulary)) {
    Request request{.prompt = {s.tokens[0], s.tokens[1]}, .sampling = s.sampling};
    request.sampling.max_tokens = 12;
    decoded.push_back(engine.generate({request})[0]);
  }
  std::vector<Sequence> drafts = known_sequences(plant.runtime.model->facts().vocabulary);
  const EngineOptions options{.page_size = 8, .cache_pages = 60};
  EngineCounters counters;
  Scheduler scheduler(options, options.cache_pages, counters);
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    drafts[i].tokens.resize(2);
    for (const GeneratedToken& t : decoded[i].tokens) drafts[i].tokens.push_back(t.id);
    scheduler.add(drafts[i]);
  }
  const std::vector<PlannedSlice> plan = scheduler.plan();
  StepWants wants;
  wants.begin(plan);
  for (const PlannedSlice& p : plan) {
    for (std::int64_t row = 1; row < p.count; ++row) wants.want(Column::sampled, row);
    wants.end_slice();
  }
  RankSteps steps(plant.runtime, options);
  steps.set_weights(plant.weights);
  StepResult result;
  steps.run(plan, wants, result);
  const std::vector<Sequence> before = known_sequences(plant.runtime.model->facts().vocabulary);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const auto sampled = result.sampled(i);
    ASSERT_EQ(sampled.size(), decoded[i].tokens.size() + 1);
    for (std::size_t t = 0; t < decoded[i].tokens.size(); ++t) {
      EXPECT_EQ(sampled[t].token, decoded[i].tokens[t].id) << i << ", " << t;
      EXPECT_EQ(std::bit_cast<std::uint32_t>(sampled[t].sampling_logprob), std::bit_cast<std::uint32_t>(decoded[i].tokens[t].sampling_logprob));
      EXPECT_EQ(std::bit_cast<std::uint32_t>(sampled[t].raw_logprob), std::bit_cast<std::uint32_t>(decoded[i].tokens[t].raw_logprob));
    }
    EXPECT_EQ(plan[i].sequence->adjustments.entries(), before[i].adjustments.entries());  // a draft leaves nothing behind
  }
}

}  // namespace
}  // namespace lockstep

// Prompts that are scored read what an engine kept of their rows (engine/kept_scores.h): every answer has the bits of an engine that keeps nothing, in all
// families, the rows that are read and computed add up, and one wrong bit is found.
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <utility>

#include "base/error.h"
#include "engine/engine.h"
#include "model/kept_forwards.h"
#include "model/observer.h"
#include "system/golden_tools.h"

namespace lockstep {
namespace {

using Texts = std::vector<std::vector<std::int32_t>>;
using Bits = std::vector<std::vector<std::uint32_t>>;

constexpr RowValues kValues[] = {RowValues::segments, RowValues::operations};

std::vector<std::uint32_t> bits_of_answer(const Generation& g) {
  std::vector<std::uint32_t> bits{static_cast<std::uint32_t>(g.finish)};
  const auto numbers = [&](const std::vector<float>& all) {
    for (const float x : all) bits.push_back(std::bit_cast<std::uint32_t>(x));
  };
  const auto told = [&](const std::vector<TokenLogprob>& all) {
    for (const TokenLogprob& t : all) bits.insert(bits.end(), {static_cast<std::uint32_t>(t.id), std::bit_cast<std::uint32_t>(t.logprob)});
  };
  numbers(g.prompt_logprobs);
  numbers(g.prompt_target_logprobs);
  told(g.prompt_draws);
  for (const auto& top : g.prompt_top_logprobs) told(top);
  for (const auto& experts : g.prompt_experts) bits.insert(bits.end(), experts.begin(), experts.end());
  for (const GeneratedToken& t : g.tokens)
    bits.insert(bits.end(), {static_cast<std::uint32_t>(t.id), std::bit_cast<std::uint32_t>(t.raw_logprob), std::bit_cast<std::uint32_t>(t.sampling_logprob)});
  return bits;
}

Bits bits_of_answers(const std::vector<Generation>& all) {
  Bits bits;
  for (const Generation& g : all) bits.push_back(bits_of_answer(g));
  return bits;
}

// How rows are kept, and which engine keeps them.
struct ScoreWay {
  RowValues values = RowValues::operations;
  EngineOptions serving = {.page_size = 4, .cache_pages = 200};
  std::int64_t kept_page = 4, most_pages = 1000, verify_every = 0;
  std::string profile = "cpu-f32";
};

// Two engines of the same weights, of which one keeps rows.
struct ScoreBench {
  Runtime runtime;
  WeightImages images;
  std::shared_ptr<const WeightSet> weights;
  std::shared_ptr<KeptForwards> kept;
  Engine keeping, plain;

  explicit ScoreBench(const Json& config, const ScoreWay& way = {})
      : runtime({.threads = 2}, make_model(config), profile_by_name(way.profile), 96),
        images(golden_weights(runtime.model->manifest(), 3)),
        weights(make(1)),
        kept(kept_of(way)),
        keeping(runtime, weights, with(way.serving)),
        plain(runtime, weights, way.serving) {}
  std::shared_ptr<const WeightSet> make(std::uint64_t version, const WeightImages* other = nullptr) {
    return make_weight_set(runtime.backend, runtime.model->manifest(), other ? *other : images, runtime.profile, version);
  }
  std::shared_ptr<KeptForwards> kept_of(const ScoreWay& way) {
    std::int64_t row = 0;
    for (const std::int64_t width : row_widths(runtime, way.values)) row += std::int64_t{sizeof(float)} * width;
    return std::make_shared<KeptForwards>(
        runtime, way.values,
        KeptForwards::Settings{.most_bytes = way.most_pages * way.kept_page * row, .page_positions = way.kept_page, .verify_every = way.verify_every});
  }
  EngineOptions with(EngineOptions options) const {
    options.kept_forwards = kept;
    return options;
  }
  std::int64_t vocabulary() const { return runtime.model->facts().vocabulary; }
  std::int64_t segments() const { return runtime.model->segments(); }
  SegmentRows rows() const { return keeping.counters().work.segment_rows; }

  using Change = std::function<void(Request&)>;
  // Prompts, of which two begin alike, each with three samples of several lengths behind it. The engine keeps what `change` says.
  Texts sampled(const Change& change = [](Request&) {}) {
    RandomSequence draws(11, RandomStream::fuzz);
    Texts prompts{random_tokens(draws, 13, vocabulary()), random_tokens(draws, 5, vocabulary())};
    prompts.push_back(prompts[0]);
    for (const std::int32_t token : random_tokens(draws, 3, vocabulary())) prompts.back().push_back(token);
    std::vector<Request> requests;
    for (const auto& prompt : prompts)
      for (std::int32_t sample = 0; sample < 3; ++sample) {
        requests.push_back({.prompt = prompt, .sampling = {.seed = 5, .max_tokens = 3 + 4 * sample, .sample_index = sample}, .keep_forward = true});
        change(requests.back());
      }
    const std::vector<Generation> generated = keeping.generate(requests);
    Texts texts;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      texts.push_back(requests[i].prompt);
      for (const GeneratedToken& token : generated[i].tokens) texts.back().push_back(token.id);
    }
    return texts;
  }
  // Everything that may be asked of a prompt's positions but experts, and one token behind it.
  Request score_of(const std::vector<std::int32_t>& text) const {
    Request request{.prompt = text, .sampling = {.seed = 9, .max_tokens = 1, .top_logprobs = 3}, .prompt_logprobs = true};
    request.prompt_targets_per_row = 2, request.prompt_draws = 2;
    for (std::size_t i = 1; i < text.size(); ++i)
      request.prompt_targets.insert(request.prompt_targets.end(), {static_cast<std::int32_t>(i % static_cast<std::size_t>(vocabulary())), -1});
    return request;
  }
  std::vector<Generation> scored(
      Engine& engine, const Texts& texts, const Change& change = [](Request&) {}) const {
    std::vector<Request> requests;
    for (const auto& text : texts) {
      requests.push_back(score_of(text));
      change(requests.back());
    }
    return engine.generate(std::move(requests));
  }
  // Scores of both engines are the same. Returns what the keeping one had for them.
  SegmentRows compare(
      const Texts& texts, const Change& change = [](Request&) {}) {
    const SegmentRows before = rows();
    EXPECT_EQ(bits_of_answers(scored(keeping, texts, change)), bits_of_answers(scored(plain, texts, change)));
    EXPECT_EQ(keeping.counters().work.fault(), "");
    return rows() - before;
  }
};

TEST(KeptScores, HaveTheBitsOfComputedOnesInAllFamilies) {
  for (const std::string& family : all_families())
    for (const RowValues values : kValues) {
      SCOPED_TRACE(family + (values == RowValues::segments ? " segments" : " operations"));
      ScoreBench bench(tiny_config(family), {.values = values, .profile = values == RowValues::segments ? "cpu-f32" : "cpu-bf16w"});
      const Texts texts = bench.sampled();
      const SegmentRows rows = bench.compare(texts);
      // Of each text all full pages before its last token.
      std::int64_t read = 0, all = 0;
      for (const auto& text : texts) read += (std::ssize(text) - 1) / 4 * 4, all += std::ssize(text);
      EXPECT_EQ(rows.read, read * bench.segments());
      EXPECT_EQ(rows.made, (all - read) * bench.segments());
      EXPECT_EQ(rows.again, 0);
      EXPECT_EQ(bench.kept->statistics().read, read);
      EXPECT_EQ(bench.kept->statistics().beside, all - read);
    }
}

// Chunks, little room for pages, pages of another size than the kept ones, guesses: in company of requests that sample.
TEST(KeptScores, HaveThemHoweverTheEngineRuns) {
  const std::vector<ScoreWay> ways = {{.serving = {.page_size = 1, .cache_pages = 600}, .kept_page = 1},
                                      {.serving = {.page_size = 4, .cache_pages = 200, .max_batch_rows = 7, .prefill_chunk = 3}},
                                      {.serving = {.page_size = 4, .cache_pages = 12, .max_batch_rows = 9, .prefill_chunk = 3}},
                                      {.serving = {.page_size = 4, .cache_pages = 200, .max_sequences = 2}, .kept_page = 16},
                                      {.serving = {.page_size = 8, .cache_pages = 200}, .kept_page = 2},
                                      {.serving = {.page_size = 4, .cache_pages = 200, .drafts = parse_drafts("ngram", 3)}},
                                      {.serving = {.page_size = 4, .cache_pages = 200, .live_token_seconds = 0.02}}};
  std::int64_t preemptions = 0;
  for (std::size_t way = 0; way < ways.size(); ++way)
    for (const RowValues values : kValues) {
      SCOPED_TRACE(fmt::format("{} {}", way, static_cast<int>(values)));
      ScoreWay own = ways[way];
      own.values = values;
      ScoreBench bench(tiny_config("qwen3"), own);
      const Texts texts = bench.sampled();
      std::vector<Request> requests;
      for (const auto& text : texts) {
        requests.push_back(bench.score_of(text));
        requests.push_back({.prompt = {text.begin(), text.begin() + 4}, .sampling = {.seed = 3, .max_tokens = 6}, .keep_forward = true});
      }
      const SegmentRows before = bench.rows();
      EXPECT_EQ(bits_of_answers(bench.keeping.generate(requests)), bits_of_answers(bench.plain.generate(requests)));
      EXPECT_EQ(bench.keeping.counters().work.fault(), "");
      if (own.serving.cache_pages >= 200) {
        EXPECT_GT((bench.rows() - before).read, 0);
      }
      preemptions += bench.keeping.counters().preemptions;
    }
  EXPECT_GT(preemptions, 0);
}

// The control of pages: without a prefix cache there are no keys and values to go on from.
TEST(KeptScores, AreComputedWithoutAPrefixCache) {
  ScoreBench bench(tiny_config("qwen3"), {.serving = {.page_size = 4, .cache_pages = 200, .prefix_cache = false}});
  const SegmentRows rows = bench.compare(bench.sampled());
  EXPECT_EQ(rows.read, 0);
  EXPECT_GT(rows.made, 0);
}

// Some texts are kept, of others there is nothing, and one goes another way behind its beginning.
TEST(KeptScores, ReadWhatIsThereAndComputeTheRest) {
  for (const RowValues values : kValues) {
    ScoreBench bench(tiny_config("qwen2"), {.values = values});
    int number = 0;
    Texts texts = bench.sampled([&](Request& request) { request.keep_forward = number++ % 2 == 1; });
    texts.push_back(texts[5]);
    texts.back()[9] = (texts.back()[9] + 1) % static_cast<std::int32_t>(bench.vocabulary());
    const SegmentRows rows = bench.compare(texts);
    EXPECT_GT(rows.read, 0);
    EXPECT_GT(rows.made, rows.read / 8);
    const SegmentRows last = bench.compare({texts.back()});
    EXPECT_EQ(last.read, 8 * bench.segments());  // the pages before the other token
  }
}

TEST(KeptScores, ReadWhatFoundMemory) {
  std::int64_t most = 0;
  for (const std::int64_t pages : {std::int64_t{1000}, std::int64_t{8}, std::int64_t{3}, std::int64_t{0}}) {
    ScoreBench bench(tiny_config("qwen3"), {.most_pages = pages});
    const std::int64_t read = bench.compare(bench.sampled()).read;
    EXPECT_LE(bench.kept->statistics().most, pages * bench.kept->layout().page_bytes());
    EXPECT_EQ(bench.kept->statistics().dropped > 0, pages < 1000) << pages;
    if (pages == 1000) {
      most = read;
    } else {
      EXPECT_LT(read, most) << pages;
    }
    if (pages == 0) {
      EXPECT_EQ(read, 0);
    }
  }
}

TEST(KeptScores, AreTheOwnersAlone) {
  ScoreBench bench(tiny_config("qwen3"));
  const Texts texts = bench.sampled([](Request& request) { request.prefix_owner = 7; });
  for (const std::uint64_t owner : {std::uint64_t{8}, std::uint64_t{0}, std::uint64_t{7}})
    EXPECT_EQ(bench.compare(texts, [&](Request& request) { request.prefix_owner = owner; }).read > 0, owner == 7) << owner;
}

TEST(KeptScores, OfOtherWeightsAreComputed) {
  ScoreBench bench(tiny_config("qwen3"));
  const auto same = bench.make(2);  // the same numbers, and another version
  const Texts texts = bench.sampled([&](Request& request) { request.weights = same; });
  EXPECT_EQ(bench.compare(texts).read, 0);
  EXPECT_GT(bench.compare(texts, [&](Request& request) { request.weights = same; }).read, 0);
  const auto next = bench.make(3), last = bench.make(4);
  bench.keeping.set_weights(next), bench.plain.set_weights(next);
  const Texts others = bench.sampled();
  EXPECT_GT(bench.compare(others).read, 0);
  bench.keeping.set_weights(last), bench.plain.set_weights(last);
  EXPECT_EQ(bench.compare(others).read, 0);
}

TEST(KeptScores, AreAnAdaptersToo) {
  ScoreBench bench(tiny_config("llama"), {.profile = "cpu-bf16w"});
  const auto layout = std::make_shared<const AdapterLayout>(bench.runtime.model->manifest(), AdapterSettings{.rank = 4});
  const WeightImages images = golden_weights(layout->manifest(), 5);  // B too, so that it changes something
  const auto adapter = make_adapter(bench.runtime.backend, layout, images, 1), other = make_adapter(bench.runtime.backend, layout, images, 2);
  const auto under = [](const std::shared_ptr<const AdapterWeights>& one) { return [one](Request& request) { request.adapter = one; }; };
  const Texts texts = bench.sampled(under(adapter));
  EXPECT_EQ(bench.compare(texts).read, 0);
  EXPECT_EQ(bench.compare(texts, under(other)).read, 0);
  EXPECT_GT(bench.compare(texts, under(adapter)).read, 0);
  EXPECT_NE(bits_of_answers(bench.scored(bench.plain, texts)), bits_of_answers(bench.scored(bench.plain, texts, under(adapter))));
}

// Where a row's experts were is not kept.
TEST(KeptScores, AreComputedWhereExpertsAreAskedFor) {
  ScoreBench bench(tiny_config("qwen3_moe"));
  const Texts texts = bench.sampled();
  EXPECT_EQ(bench.compare(texts, [](Request& request) { request.experts = true; }).read, 0);
  EXPECT_GT(bench.compare(texts).read, 0);
}

// Put back, or under new weights, in the middle of what is read.
TEST(KeptScores, MayBeginAgain) {
  for (const RowValues values : kValues) {
    ScoreBench bench(tiny_config("qwen3"), {.values = values, .serving = {.page_size = 4, .cache_pages = 200, .prefill_chunk = 3}});
    const WeightImages images = golden_weights(bench.runtime.model->manifest(), 4);
    const auto next = bench.make(2, &images);
    const Texts texts = bench.sampled();
    const auto interrupted = [&](const std::function<void(std::uint64_t)>& in_the_middle) {
      Generation answer;
      const std::uint64_t id = bench.keeping.submit(bench.score_of(texts.back()), {}, [&](Generation&& g) { answer = std::move(g); });
      const std::int64_t before = bench.rows().read;
      bench.keeping.step(), bench.keeping.step();
      EXPECT_EQ(bench.rows().read - before, 6 * bench.segments());
      in_the_middle(id);
      bench.keeping.run_until_idle();
      EXPECT_EQ(bench.keeping.counters().work.fault(), "");
      return bits_of_answer(answer);
    };
    EXPECT_EQ(interrupted([&](std::uint64_t id) { bench.keeping.preempt(id); }), bits_of_answer(bench.scored(bench.plain, {texts.back()})[0]));
    const auto of_next = interrupted([&](std::uint64_t) { bench.keeping.set_weights(next); });
    EXPECT_NE(of_next, bits_of_answer(bench.scored(bench.plain, {texts.back()})[0]));
    bench.plain.set_weights(next);
    EXPECT_EQ(of_next, bits_of_answer(bench.scored(bench.plain, {texts.back()})[0]));
  }
}

// Flips a bit of what was kept of a row.
void plant_wrong_score_bit(ScoreBench& bench, const std::vector<std::int32_t>& text, std::int64_t row, std::int64_t value) {
  std::vector<KeptForwards::Piece> pieces;
  const std::int64_t page = bench.kept->layout().positions();
  ASSERT_TRUE(bench.kept->find({bench.weights->identity, 0}, text, row, row - row % page + page, pieces));  // all of its page, of which there is one
  const View at = bench.kept->layout().of_value(pieces[0].rows->view(), value).row_range(pieces[0].first, 1);
  Stream& stream = bench.runtime.backend.stream();
  std::vector<float> values = stream.read(at).get();
  values[2] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(values[2]) ^ (1u << 18));
  stream.write(at, values);
}

TEST(KeptScores, OneWrongBitIsFound) {
  for (const RowValues values : kValues)
    for (const bool last : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", static_cast<int>(values), last));
      ScoreBench bench(tiny_config("llama"), {.values = values, .verify_every = 1});
      const Texts texts = bench.sampled();
      const SegmentRows rows = bench.compare(texts);  // nothing is wrong yet
      EXPECT_EQ(rows.again, rows.read);
      EXPECT_EQ(bench.kept->statistics().compared, bench.kept->statistics().read);
      plant_wrong_score_bit(bench, texts[4], 6, last ? bench.kept->layout().values() - 1 : 0);
      const std::vector<Generation> answers = bench.scored(bench.keeping, texts), wanted = bench.scored(bench.plain, texts);
      const std::string& error = answers[4].error;
      EXPECT_EQ(answers[4].finish, FinishReason::error);
      EXPECT_NE(error.find("the prompt, position 6: what was kept of its forward is not what is computed now"), std::string::npos) << error;
      EXPECT_NE(error.find("bits 0x"), std::string::npos) << error;
      EXPECT_EQ(bits_of_answer(answers[0]), bits_of_answer(wanted[0]));  // of another prompt
      EXPECT_EQ(bench.keeping.counters().work.fault(), "");
      // What is sampled behind that text reads the cache, which has what was computed.
      const std::vector<Request> more = {{.prompt = texts[4], .sampling = {.seed = 2, .max_tokens = 5}}};
      EXPECT_EQ(bits_of_answers(bench.keeping.generate(more)), bits_of_answers(bench.plain.generate(more)));
    }
}

// Fails in the first operation that it sees.
class FailsAtOnce final : public OperationObserver {
 public:
  void begin_forward(Backend&, const Batch&) override {}
  void operation(const Operation&) override { fail(ErrorCode::internal, "planted"); }
};

// What else goes wrong while rows are read is no request's fault: the step throws, all stay, and start over.
TEST(KeptScores, AnotherErrorIsTheSteps) {
  for (const RowValues values : kValues)
    for (const std::int64_t verify_every : {0, 1}) {
      SCOPED_TRACE(fmt::format("{} {}", static_cast<int>(values), verify_every));
      ScoreBench bench(tiny_config("llama"), {.values = values, .verify_every = verify_every});
      const Texts texts = bench.sampled();
      const std::int64_t computed = bench.keeping.counters().forwards;
      Generation answer;
      bench.keeping.submit(bench.score_of(texts.back()), {}, [&answer](Generation&& g) { answer = std::move(g); });
      FailsAtOnce observer;
      bench.runtime.observer = &observer;
      EXPECT_THROW(bench.keeping.step(), Error);
      bench.runtime.observer = nullptr;
      EXPECT_EQ(bench.keeping.counters().forwards, computed);  // nothing but rows that are read was in that step
      bench.keeping.run_until_idle();
      EXPECT_EQ(bits_of_answer(answer), bits_of_answer(bench.scored(bench.plain, {texts.back()})[0]));
      EXPECT_EQ(bench.keeping.counters().work.fault(), "");
    }
}

// The control: nobody compares, and the score is another. No entry of the cache is written by what is read.
TEST(KeptScores, AWrongBitThatNobodyLooksForIsTold) {
  for (const RowValues values : kValues) {
    ScoreBench bench(tiny_config("llama"), {.values = values});
    const Texts texts = bench.sampled();
    plant_wrong_score_bit(bench, texts[4], 6, bench.kept->layout().values() - 1);
    if (values == RowValues::operations) plant_wrong_score_bit(bench, texts[4], 5, 1);  // keys of the first layer
    const std::vector<Generation> answers = bench.scored(bench.keeping, {texts[4]}), wanted = bench.scored(bench.plain, {texts[4]});
    EXPECT_EQ(answers[0].finish, wanted[0].finish);
    EXPECT_NE(bits_of_answer(answers[0]), bits_of_answer(wanted[0]));
    const std::vector<Request> more = {{.prompt = texts[4], .sampling = {.seed = 2, .max_tokens = 5}}};
    const std::vector<Generation> said = bench.keeping.generate(more);
    EXPECT_GT(said[0].cached_tokens, 0);
    EXPECT_EQ(bits_of_answers(said), bits_of_answers(bench.plain.generate(more)));
  }
}

TEST(KeptScores, OneForwardInSoManyIsCompared) {
  ScoreBench bench(tiny_config("qwen3"), {.verify_every = 3});
  const Texts texts = bench.sampled();
  const SegmentRows rows = bench.compare(texts);  // a forward a text
  EXPECT_GT(rows.again, 0);
  EXPECT_LT(rows.again, rows.read);
  EXPECT_EQ(bench.kept->statistics().compared * bench.segments(), rows.again);
}

}  // namespace
}  // namespace lockstep

// An engine whose ranks several processes have drafts as one rank does, with the model's layer and from other sources: no bit of an answer changes, and what
// is guessed, taken and, under rejection sampling, said is the same. Threads stand for processes, with a wire in memory between them.
#include "engine/drafts_test_tools.h"
#include "engine/step_follower.h"
#include "model/adapter_test_tools.h"
#include "parallel/memory_wire_test_tools.h"

namespace lockstep {
namespace {

struct DraftingCase {
  std::string profile = "cpu-bf16w";
  RankLayout ranks = {};
  int processes = 1;
  bool shares_keys = true;
  std::int64_t tokens = 4;
  bool forgets = false;  // the control: a follower leaves out what its layer is to keep
};

void draft_until_the_end(ProcessMail& mail, const DraftingCase& c) {
  MtpPlant plant(c.profile, {.threads = 1}, 128, c.shares_keys);
  StepFollower follower(plant.runtime, mail);
  while (const std::optional<std::string> call = mail.next_call()) {
    std::string bytes = *call;
    if (c.forgets && call->front() == static_cast<char>(EngineCall::keep)) {
      ByteWriter nothing;
      nothing.value(EngineCall::keep), nothing.values(std::vector<MtpSteps::Kept>());
      bytes = nothing.take();
    }
    ByteReader in(bytes);
    follower.perform(in);
  }
}

struct Drafted {
  std::vector<std::vector<std::uint32_t>> bits;
  std::vector<std::vector<std::int64_t>> counts;  // of a request: guesses, tokens guessed, taken, and where
  std::int64_t by_layer = 0, by_ngram = 0;
  bool operator==(const Drafted&) const = default;
};

std::vector<Request> drafting_requests(MtpPlant& plant, const char* sources, std::int64_t tokens, bool rejects, bool own) {
  RandomSequence draws(3, RandomStream::fuzz);
  std::vector<Request> requests(6);
  const auto layout = std::make_shared<const AdapterLayout>(plant.runtime.model->manifest(), AdapterSettings{.rank = 4, .alpha = 7, .unembedding = true});
  const auto adapter = make_adapter(plant.runtime.backend, layout, stirred(*layout, 5), 1);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    constexpr float kTemperatures[] = {0, 0.7f, 1};
    requests[i].prompt = random_tokens(draws, 5 + static_cast<std::int64_t>(i * 7 % 17), plant.vocabulary());
    requests[i].sampling = {.temperature = kTemperatures[i % 3], .top_k = i == 4 ? 20 : 0, .seed = i, .max_tokens = 40};
    if (i == 5) requests[i].sampling.min_p = 0.05f;
    if (std::string(sources) != "off") requests[i].drafts = parse_drafts(sources, tokens);
    if (rejects) requests[i].drafts->acceptance = DraftOptions::Acceptance::rejection;
    if (own && i % 2 == 1) requests[i].adapter = adapter;
  }
  return requests;
}

// With and without adapters; from the cache; behind other weights of the layer; under rejection sampling.
Drafted drafted(MtpPlant& plant, const DraftingCase& c, const char* sources, ProcessMail* lead) {
  EngineOptions options{.page_size = 4, .cache_pages = 60, .max_batch_rows = 48, .prefill_chunk = 16};
  options.ranks = c.ranks, options.lead = lead;
  Engine engine(plant.runtime, plant.weights, options, plant.layer);
  Drafted out;
  const auto say = [&](bool rejects, bool own) {
    for (const Generation& g : engine.generate(drafting_requests(plant, sources, c.tokens, rejects, own))) {
      out.bits.push_back(all_bits_of(g));
      out.counts.push_back({g.drafts.drafts, g.drafts.tokens, g.drafts.accepted});
      out.counts.back().insert(out.counts.back().end(), g.drafts.accepted_at.begin(), g.drafts.accepted_at.end());
    }
  };
  say(false, false), say(false, true);
  plant.layer_images = initial_weights(plant.runtime.model->mtp()->manifest(), 12, 0.25);
  engine.set_weights(plant.weights, InFlight::go_on, plant.make_layer());
  say(false, true);
  if (std::string(sources) != "off") say(true, true);
  out.by_layer = engine.counters().drafts.accepted_by(DraftKind::mtp), out.by_ngram = engine.counters().drafts.accepted_by(DraftKind::ngram);
  return out;
}

Drafted drafted_by_one(const DraftingCase& c, const char* sources) {
  MtpPlant plant(c.profile, {.threads = 1}, 128, c.shares_keys);
  return drafted(plant, {.profile = c.profile, .shares_keys = c.shares_keys, .tokens = c.tokens}, sources, nullptr);
}

Drafted drafted_over_processes(const DraftingCase& c, const char* sources) {
  Drafted got;
  as_processes(c.processes, [&](ProcessMail& mail) {
    if (mail.process() > 0) return draft_until_the_end(mail, c);
    MtpPlant plant(c.profile, {.threads = 1}, 128, c.shares_keys);
    got = drafted(plant, c, sources, &mail);
  });
  return got;
}

TEST(DraftsOverProcesses, AreThoseOfOneRank) {
  for (const char* profile : {"cpu-bf16w", "cpu-f32"})
    for (const char* sources : {"mtp", "mtp,ngram", "ngram"}) {
      const Drafted want = drafted_by_one({.profile = profile}, sources), bare = drafted_by_one({.profile = profile}, "off");
      for (std::size_t i = 0; i < bare.bits.size(); ++i) EXPECT_EQ(want.bits[i], bare.bits[i]) << i;
      EXPECT_GT(std::string(sources) == "ngram" ? want.by_ngram : want.by_layer, 20) << sources;
      for (const auto& [ranks, processes] : {std::pair(RankLayout{.tp = 2}, 2), std::pair(RankLayout{.tp = 2, .ep = 2}, 3), std::pair(RankLayout{.pp = 2}, 2),
                                             std::pair(RankLayout{.tp = 2, .pp = 2}, 4)}) {
        SCOPED_TRACE(fmt::format("{}, {}, {}, {} processes", profile, sources, ranks.text(), processes));
        const Drafted got = drafted_over_processes({.profile = profile, .ranks = ranks, .processes = processes}, sources);
        EXPECT_EQ(got.bits, want.bits);
        EXPECT_EQ(got.counts, want.counts);
      }
    }
}

TEST(DraftsOverProcesses, OfDepthsThatShareNothing) {
  const DraftingCase own{.ranks = {.tp = 2}, .processes = 2, .shares_keys = false};
  const Drafted want = drafted_by_one(own, "mtp");
  EXPECT_GT(want.by_layer, 20);
  EXPECT_EQ(drafted_over_processes(own, "mtp"), want);
}

// The control: a follower whose layer reads other states guesses something else, which is seen in the counts. No answer depends on guesses.
TEST(DraftsOverProcesses, AFollowerThatForgetsStatesIsSeen) {
  const DraftingCase forgets{.ranks = {.tp = 2}, .processes = 2, .tokens = 1, .forgets = true};
  const Drafted want = drafted_by_one(forgets, "mtp"), got = drafted_over_processes(forgets, "mtp");
  for (std::size_t i = 0; i < 18; ++i) EXPECT_EQ(got.bits[i], want.bits[i]) << i;
  EXPECT_NE(got.counts, want.counts);
}

}  // namespace
}  // namespace lockstep

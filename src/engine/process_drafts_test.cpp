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
  bool meddle = false;  // the control: the layer of a follower is asked about other tokens
};

// What the layer is asked, each last token another one.
std::string about_other_tokens(const std::string& call) {
  ByteReader in(call);
  in.value<EngineCall>();
  TakenGuess guess = taken_guess(in, {});
  for (Sequence& s : guess.sequences) s.tokens.back() = s.tokens.back() == 3 ? 4 : 3;
  ByteWriter out;
  out.value(EngineCall::guess);
  put_guess(out, guess.asked, guess.tokens);
  return out.take();
}

void draft_until_the_end(ProcessMail& mail, const DraftingCase& c) {
  MtpPlant plant(c.profile, {.threads = 1}, 128, c.shares_keys);
  StepFollower follower(plant.runtime, mail);
  int guesses = 0;
  while (const std::optional<std::string> call = mail.next_call()) {
    const bool meddled = c.meddle && call->front() == static_cast<char>(EngineCall::guess) && guesses++ < 9;  // before requests bring adapters
    const std::string bytes = meddled ? about_other_tokens(*call) : *call;
    ByteReader in(bytes);
    follower.perform(in);
  }
}

struct Drafted {
  std::vector<std::vector<std::uint32_t>> bits;
  std::vector<std::vector<std::int64_t>> counts;  // of a request: guesses, tokens guessed, taken, and where
  std::int64_t by_layer = 0;
  bool operator==(const Drafted&) const = default;
};

std::vector<Request> drafting_requests(MtpPlant& plant, const char* sources, std::int64_t tokens, bool rejects, bool own) {
  RandomSequence draws(3, RandomStream::fuzz);
  std::vector<Request> requests(4);
  const auto layout = std::make_shared<const AdapterLayout>(plant.runtime.model->manifest(), AdapterSettings{.rank = 4, .alpha = 7, .unembedding = true});
  const auto adapter = make_adapter(plant.runtime.backend, layout, stirred(*layout, 5), 1);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    constexpr float kTemperatures[] = {0, 0.7f, 1};
    requests[i].prompt = random_tokens(draws, 5 + static_cast<std::int64_t>(i * 7 % 17), plant.vocabulary());
    requests[i].sampling = {.temperature = kTemperatures[i % 3], .top_k = i == 2 ? 20 : 0, .seed = i, .max_tokens = 24};
    if (i == 3) requests[i].sampling.min_p = 0.05f;
    if (i == 0) requests[i].sampling.logit_bias = {{7, 50}};  // it repeats itself, as n-grams need it
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
  out.by_layer = engine.counters().drafts.accepted_by(DraftKind::mtp);
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

void expect_those_of_one_rank(const std::string& profile, const char* sources, const std::vector<std::pair<RankLayout, int>>& layouts) {
  const Drafted want = drafted_by_one({.profile = profile}, sources), bare = drafted_by_one({.profile = profile}, "off");
  for (std::size_t i = 0; i < bare.bits.size(); ++i) EXPECT_EQ(want.bits[i], bare.bits[i]) << i;
  EXPECT_GT(want.by_layer, 10);
  for (const auto& [ranks, processes] : layouts) {
    SCOPED_TRACE(fmt::format("{}, {}, {}, {} processes", profile, sources, ranks.text(), processes));
    const Drafted got = drafted_over_processes({.profile = profile, .ranks = ranks, .processes = processes}, sources);
    EXPECT_EQ(got.bits, want.bits);
    EXPECT_EQ(got.counts, want.counts);
  }
}

TEST(DraftsOverProcesses, AreThoseOfOneRank) {
  expect_those_of_one_rank("cpu-bf16w", "mtp", {{RankLayout{.tp = 2}, 2}, {RankLayout{.tp = 2, .ep = 2}, 3}, {RankLayout{.pp = 2}, 2}});
  expect_those_of_one_rank("cpu-f32", "mtp", {{RankLayout{.ep = 2}, 2}, {RankLayout{.tp = 2, .pp = 2}, 4}});
}

TEST(DraftsOverProcesses, OfDepthsThatShareNothing) {
  const DraftingCase own{.ranks = {.tp = 2}, .processes = 2, .shares_keys = false};
  const Drafted want = drafted_by_one(own, "mtp");
  EXPECT_GT(want.by_layer, 10);
  EXPECT_EQ(drafted_over_processes(own, "mtp"), want);
}

// The control: a follower whose layer is asked about other tokens guesses something else, which is seen in the counts. No answer depends on guesses.
TEST(DraftsOverProcesses, AFollowerThatIsAskedSomethingElseIsSeen) {
  const DraftingCase meddled{.ranks = {.tp = 2}, .processes = 2, .tokens = 1, .meddle = true};
  const Drafted want = drafted_by_one(meddled, "mtp"), got = drafted_over_processes(meddled, "mtp");
  const std::size_t coupled = 3 * want.bits.size() / 4;
  for (std::size_t i = 0; i < coupled; ++i) EXPECT_EQ(got.bits[i], want.bits[i]) << i;
  EXPECT_NE(got.counts, want.counts);
}

}  // namespace
}  // namespace lockstep

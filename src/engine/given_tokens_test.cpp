// Tests answers whose tokens are given (Request::given): they have the bits of the answer that was sampled so, whatever the noise, and the model's own
// log-probabilities where nobody sampled them.
#include "engine/engine_test_tools.h"

namespace lockstep {
namespace {

std::vector<Request> filtered_requests(std::int64_t vocabulary) {
  RandomSequence draws(11, RandomStream::fuzz);
  std::vector<Request> requests;
  for (const float temperature : {0.6f, 1.0f, 1.4f})
    for (const std::int32_t top_k : {0, 9})
      for (const float top_p : {1.0f, 0.8f}) {
        Request& r = requests.emplace_back(Request{.prompt = random_tokens(draws, 1 + draws.below(20), vocabulary), .kept_tokens = true});
        r.sampling = {.temperature = temperature, .top_p = top_p, .top_k = top_k, .seed = draws.next(), .max_tokens = 9};
      }
  return requests;
}

TEST(GivenTokens, HaveTheBitsOfTheAnswerThatWasSampledSo) {
  Plant plant;
  Engine engine(plant.runtime, plant.weights, {.page_size = 4});
  std::vector<Request> requests = filtered_requests(plant.runtime.model->facts().vocabulary);
  const std::vector<Generation> said = engine.generate(requests);
  for (const bool guessed : {false, true}) {  // several tokens a forward, too
    std::vector<Request> again = requests;
    for (std::size_t i = 0; i < again.size(); ++i) {
      again[i].sampling.seed += 17;
      for (const GeneratedToken& token : said[i].tokens) again[i].given.push_back(token.id);
      if (guessed) again[i].drafts = DraftOptions{.length = DraftOptions::Length::fixed, .tokens = 3};
      if (guessed)
        again[i].draft_script = [text = again[i].given, begin = again[i].prompt.size()](std::span<const std::int32_t> now, std::int64_t most,
                                                                                        std::vector<std::int32_t>& out) {
          for (std::size_t at = now.size() - begin; at < text.size() && std::ssize(out) < most; ++at) out.push_back(text[at]);
        };
    }
    const std::vector<Generation> got = engine.generate(again);
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(bits_of(got[i]), bits_of(said[i])) << i << guessed;
      for (std::size_t t = 0; t < got[i].tokens.size(); ++t) EXPECT_EQ(got[i].tokens[t].kept, said[i].tokens[t].kept) << i;
    }
  }
  EXPECT_GT(engine.counters().drafts.accepted, 0);
  // The control: with the other noise alone other tokens are drawn.
  for (Request& request : requests) request.sampling.seed += 17;
  const std::vector<Generation> other = engine.generate(requests);
  int different = 0;
  for (std::size_t i = 0; i < other.size(); ++i) different += bits_of(other[i]) != bits_of(said[i]);
  EXPECT_GT(different, 6);
}

TEST(GivenTokens, OfAnyTextHaveTheModelsLogProbabilities) {
  Plant plant;
  Engine engine(plant.runtime, plant.weights, {.page_size = 4});
  RandomSequence draws(3, RandomStream::fuzz);
  const std::vector<std::int32_t> text = random_tokens(draws, 30, plant.runtime.model->facts().vocabulary);
  const Generation scored = engine.generate({Request{.prompt = text, .sampling = {.max_tokens = 0}, .prompt_logprobs = true}})[0];
  Request request{.prompt = {text.begin(), text.begin() + 7}, .sampling = {.max_tokens = 26}};
  request.given.assign(text.begin() + 7, text.end());  // and three that are drawn
  const Generation given = engine.generate({request})[0];
  ASSERT_EQ(given.tokens.size(), 26u);
  for (std::size_t i = 0; i < request.given.size(); ++i) {
    EXPECT_EQ(given.tokens[i].id, request.given[i]);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(given.tokens[i].sampling_logprob), std::bit_cast<std::uint32_t>(scored.prompt_logprobs[6 + i])) << i;
  }
}

TEST(GivenTokens, AreRefusedWhereNoneAreTaken) {
  Plant plant;
  Engine engine(plant.runtime, plant.weights);
  const auto told = [&](const Request& request) {
    try {
      engine.submit(request);
    } catch (const Error& e) {
      return e.message();
    }
    return std::string("nothing");
  };
  Request request{.prompt = {1}, .sampling = {.max_tokens = 2}};
  request.given = {1, 2, 3};
  EXPECT_EQ(told(request), "given has 3 tokens, allowed are at most max_tokens, 2");
  request.given = {1, -2};
  EXPECT_EQ(told(request), fmt::format("given[1] is -2, allowed are token ids from 0 to {}", plant.runtime.model->facts().vocabulary - 1));
  request.given = {1};
  request.sampling.temperature = 0;
  EXPECT_EQ(told(request), "given has 1 tokens at temperature 0, allowed is a temperature above 0 and no constraint");
}

}  // namespace
}  // namespace lockstep

// Compares the log-probabilities of sampled tokens under every sampling setting with those of the training forward over the same kept sets, and
// what is sampled with guesses ahead: with what is sampled without, or, where guesses are rejected, with what each request says alone.
#include <algorithm>
#include <bit>
#include <iterator>

#include "parity/parity_run.h"

namespace lockstep {

namespace {
// Allows every third token or so, others at every token of the completion: as a schema does, a mask a token.
class ScatteredMask : public TokenConstraint {
 public:
  ScatteredMask(std::uint64_t seed, std::int64_t vocabulary) : seed_(seed), vocabulary_(vocabulary) {}
  void allowed(std::span<std::uint32_t> words) override {
    RandomSequence draws(seed_, RandomStream::fuzz, static_cast<std::uint64_t>(accepted_));
    for (std::int64_t t = 0; t < vocabulary_; ++t)
      if (draws.below(3) == 0 || t == 0) words[static_cast<std::size_t>(t / 32)] |= 1u << (t % 32);
  }
  void accept(std::int32_t) override { ++accepted_; }
  void truncate(std::int64_t count) override { accepted_ = count; }

 private:
  std::uint64_t seed_;
  std::int64_t vocabulary_, accepted_ = 0;
};

std::vector<Request> sampled_requests(const ParityScene& scene, std::uint64_t item) {
  RandomSequence draws = scene.draws(item);
  const std::int64_t vocabulary = scene.model.model->facts().vocabulary;
  std::vector<Request> requests;
  for (const bool mask : {false, true})
    for (const bool filters : {false, true})
      for (int i = 0; i < 2; ++i) {
        const std::int64_t prompt = 1 + draws.below(static_cast<std::uint32_t>(std::min<std::int64_t>(scene.longest - 1, 12)));
        Request& r = requests.emplace_back(Request{.prompt = scene.random_tokens(draws, prompt), .kept_tokens = true});
        SamplingParameters& s = r.sampling;
        s.temperature = 0.3f + 1.2f * static_cast<float>(draws.uniform());
        s.seed = draws.next();
        s.max_tokens = static_cast<std::int32_t>(std::min<std::int64_t>(scene.longest - prompt, 10));
        if (mask) s.constraint = std::make_shared<ScatteredMask>(s.seed, vocabulary);
        if (!filters) continue;
        if (i == 0) s.top_k = 2 + static_cast<std::int32_t>(draws.below(static_cast<std::uint32_t>(std::min<std::int64_t>(vocabulary, 60))));
        else s.top_p = 0.5f + 0.45f * static_cast<float>(draws.uniform());
        if (draws.below(2)) s.min_p = 0.02f;
      }
  return requests;
}

// The request with a draft of which three tokens in four are right.
Request guessed_ahead(Request request, const Generation& said, std::int64_t vocabulary) {
  std::vector<std::int32_t> text = request.prompt;
  for (const GeneratedToken& token : said.tokens) text.push_back(token.id);
  request.drafts = DraftOptions{.length = DraftOptions::Length::fixed, .tokens = 4};
  request.draft_script = [text, vocabulary](std::span<const std::int32_t> now, std::int64_t most, std::vector<std::int32_t>& out) {
    for (std::size_t i = now.size(); i < text.size() && std::ssize(out) < most; ++i)
      out.push_back(i % 4 == 3 ? static_cast<std::int32_t>((text[i] + 1) % vocabulary) : text[i]);
  };
  return request;
}

// Runs the same requests again with several tokens of each in a forward: every returned bit must be as before. `name`: of the counters; `before`: how
// they were computed before, for messages.
void compare_guessed(ParityScene& scene, ParityBench& bench, const std::string& name, const char* before, std::vector<Request> requests,
                     const std::vector<Generation>& want) {
  const std::vector<Generation> got = bench.engine->generate(std::move(requests));
  for (std::size_t i = 0; i < got.size(); ++i) {
    scene.counters[name + "_right"] += got[i].drafts.accepted;
    scene.counters[name + "_wrong"] += got[i].drafts.tokens - got[i].drafts.accepted;
    const std::size_t tokens = std::max(got[i].tokens.size(), want[i].tokens.size());
    for (std::size_t t = 0; t < tokens; ++t) {
      ++scene.report.tokens;
      const GeneratedToken none;
      const GeneratedToken& a = t < want[i].tokens.size() ? want[i].tokens[t] : none;
      const GeneratedToken& b = t < got[i].tokens.size() ? got[i].tokens[t] : none;
      const auto expected = std::bit_cast<std::uint32_t>(a.sampling_logprob), bits = std::bit_cast<std::uint32_t>(b.sampling_logprob);
      if (a.id == b.id && bits == expected && std::bit_cast<std::uint32_t>(a.raw_logprob) == std::bit_cast<std::uint32_t>(b.raw_logprob)) continue;
      scene.mismatch([&] {
        return ParityMismatch{
            "sampling log-probability",
            -1,
            {static_cast<std::int64_t>(t)},
            expected,
            bits,
            fmt::format("decoding with guesses ahead ({}) against {}, tokens {} and {}, on {}", name, before, b.id, a.id, bench.place.text())};
      });
      break;
    }
    ++scene.report.comparisons;
  }
}

// What was sampled has the log-probabilities of the training forward over the same kept sets.
void compare_with_training(ParityScene& scene, ParityBench& bench, const std::vector<Request>& requests, const std::vector<Generation>& generations) {
  std::vector<TrainSequence> data, plain;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    TrainSequence& d = data.emplace_back();
    d.tokens = requests[i].prompt;
    d.temperature = requests[i].sampling.temperature;
    d.targets.assign(d.tokens.size() - 1, -1);
    d.kept_tokens.resize(d.tokens.size() - 1);
    for (const GeneratedToken& t : generations[i].tokens) {
      d.tokens.push_back(t.id);
      d.targets.push_back(t.id);
      d.kept_tokens.push_back(t.kept);
    }
    d.tokens.pop_back();
    d.weights.assign(d.tokens.size(), 1.0f);
    plain.push_back(d);
    plain.back().kept_tokens.clear();
  }
  const std::vector<std::vector<float>> got = bench.trainer->score(data), uncut = bench.trainer->score(plain);
  for (std::size_t i = 0; i < data.size(); ++i) {
    const std::vector<GeneratedToken>& tokens = generations[i].tokens;
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const std::size_t row = requests[i].prompt.size() - 1 + t;
      const auto expected = std::bit_cast<std::uint32_t>(tokens[t].sampling_logprob), bits = std::bit_cast<std::uint32_t>(got[i][row]);
      if (tokens[t].kept.cut()) {
        ++scene.counters["kept_set_tokens"];
        scene.counters["kept_set_control"] += std::bit_cast<std::uint32_t>(uncut[i][row]) != expected;
      }
      ++scene.report.tokens;
      if (bits == expected) continue;
      const SamplingParameters& s = requests[i].sampling;
      scene.mismatch([&] {
        return ParityMismatch{"sampling log-probability",
                              -1,
                              {static_cast<std::int64_t>(row)},
                              expected,
                              bits,
                              fmt::format("training against sampling at temperature {}, top_k {}, top_p {}, min_p {}{}, {} tokens kept, on {}", s.temperature,
                                          s.top_k, s.top_p, s.min_p, s.constraint ? ", a mask" : "", tokens[t].kept.count, bench.place.text())};
      });
    }
    ++scene.report.comparisons;
  }
}

// By guesses of which some are right, and by those of the model's own layer: with coupled acceptance everything is as `plain`, what was said without
// guesses. By rejection it is another text: each request alone has the trainer's log-probabilities, and samples the same tokens, bit for bit, beside others.
void compare_guesses(ParityScene& scene, ParityBench& bench, std::uint64_t item, const std::vector<Generation>& plain) {
  using Acceptance = DraftOptions::Acceptance;
  for (const bool by_layer : {false, true}) {
    if (by_layer && (scene.model.layer.empty() || bench.place.ranks.size() > 1)) continue;
    const std::string prefix = by_layer ? "layer_" : "";
    const auto requests = [&](Acceptance acceptance) {  // a mask remembers what it has seen: each time new ones
      std::vector<Request> all = sampled_requests(scene, item);
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (by_layer) all[i].drafts = parse_drafts("mtp", 4);
        else all[i] = guessed_ahead(std::move(all[i]), plain[i], scene.model.model->facts().vocabulary);
        all[i].drafts->acceptance = acceptance;
      }
      return all;
    };
    compare_guessed(scene, bench, prefix + "drafts", "decoding", requests(Acceptance::coupled), plain);
    const std::vector<Request> asked = requests(Acceptance::rejection);
    std::vector<Generation> alone;
    for (const Request& request : asked) {
      alone.push_back(bench.engine->generate({request})[0]);
      const std::vector<GeneratedToken>&said = alone.back().tokens, &before = plain[alone.size() - 1].tokens;
      for (std::size_t t = 0; t < std::min(said.size(), before.size()); ++t) scene.counters[prefix + "rejection_other_tokens"] += said[t].id != before[t].id;
    }
    compare_with_training(scene, bench, asked, alone);
    compare_guessed(scene, bench, prefix + "rejection", "the same alone", requests(Acceptance::rejection), alone);
  }
}
}  // namespace

void compare_sampling(ParityScene& scene, ParityBench& bench, std::uint64_t item) {
  const std::vector<Request> requests = sampled_requests(scene, item);
  const std::vector<Generation> generations = bench.engine->generate(requests);
  compare_with_training(scene, bench, requests, generations);
  compare_guesses(scene, bench, item, generations);
}

}  // namespace lockstep

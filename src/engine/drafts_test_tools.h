// Requests that are guessed ahead in every way: right, wrong, random guesses, those of sources. Tests only.
#pragma once
#include "engine/rich_requests_test_tools.h"

namespace lockstep {

// A golden's architecture with a layer of multi-token prediction; both with random weights.
struct MtpPlant {
  Runtime runtime;
  WeightImages images, layer_images;
  std::shared_ptr<const WeightSet> weights, layer;

  explicit MtpPlant(const std::string& profile = "cpu-bf16w", const BackendOptions& backend = {.threads = 2}, std::int64_t positions = 128,
                    bool shares_keys = true, bool normed_state = true)
      : runtime(backend, make_model(config(), {.mtp_shares_keys = shares_keys, .mtp_normed_state = normed_state}), profile_by_name(profile), positions),
        images(initial_weights(runtime.model->manifest(), 7, 0.25)),
        layer_images(initial_weights(runtime.model->mtp()->manifest(), 11, 0.25)),
        weights(make_weight_set(runtime.backend, runtime.model->manifest(), images, runtime.profile, 1)),
        layer(make_layer()) {}
  static Json config() {
    Json json = golden_config("sharing");
    json["num_nextn_predict_layers"] = 1;
    return json;
  }
  std::shared_ptr<const WeightSet> make_layer() { return make_weight_set(runtime.backend, runtime.model->mtp()->manifest(), layer_images, runtime.profile, 0); }
  std::int64_t vocabulary() const { return runtime.model->facts().vocabulary; }
};

enum class Guesses { perfect, hostile, random, ngram, siblings, all };
inline constexpr Guesses kAllGuesses[] = {Guesses::perfect, Guesses::hostile, Guesses::random, Guesses::ngram, Guesses::siblings, Guesses::all};

// `said`: what the request says without guesses.
inline Request guessed(Request request, Guesses guesses, const Generation& said, std::int64_t vocabulary, std::int64_t tokens, std::uint64_t seed = 1) {
  request.drafts = DraftOptions{.length = DraftOptions::Length::fixed, .tokens = tokens};
  if (guesses == Guesses::ngram || guesses == Guesses::siblings || guesses == Guesses::all) {
    const char* const sources = guesses == Guesses::all ? "ngram,siblings,prediction,grammar" : guesses == Guesses::ngram ? "ngram" : "siblings";
    request.drafts = parse_drafts(sources, tokens);
    // A prediction with some words changed.
    if (guesses == Guesses::all)
      for (std::size_t i = 0; i < said.tokens.size(); ++i) request.prediction.push_back(i % 5 == 4 ? 0 : said.tokens[i].id);
    return request;
  }
  std::vector<std::int32_t> text = request.prompt;
  for (const GeneratedToken& t : said.tokens) text.push_back(t.id);
  request.draft_script = [text, guesses, vocabulary, seed](std::span<const std::int32_t> now, std::int64_t most, std::vector<std::int32_t>& out) {
    RandomSequence draws(seed + now.size(), RandomStream::fuzz);
    for (std::size_t i = now.size(); i < text.size() && most > 0; ++i, --most) {
      const bool right = guesses == Guesses::perfect || (guesses == Guesses::random && draws.below(4) > 0);
      out.push_back(right ? text[i] : static_cast<std::int32_t>((text[i] + 1 + draws.below(5)) % vocabulary));
    }
  };
  return request;
}

inline std::vector<std::uint32_t> all_bits_of(const Generation& g) {
  std::vector<std::uint32_t> bits = bits_of(g);
  for (const GeneratedToken& t : g.tokens) {
    bits.push_back(static_cast<std::uint32_t>(t.weights_version));
    bits.push_back(static_cast<std::uint32_t>(t.kept.count));
    bits.push_back(static_cast<std::uint32_t>(t.kept.order));
    for (const auto word : t.kept.words) bits.push_back(static_cast<std::uint32_t>(word));
  }
  for (const char c : g.error) bits.push_back(static_cast<std::uint32_t>(c));
  return bits;
}

// What an engine says whose noise depends on the step instead of the position, or, without `by_step`, on the position as ever.
inline Generation said_with_noise(Engine& engine, const Request& asked, bool by_step) {
  Generation said;
  engine.submit(asked, {}, [&](Generation&& g) { said = std::move(g); });
  while (engine.step())
    for (Sequence* s : engine.scheduler().running())
      if (by_step) s->sampling.seed = static_cast<std::uint64_t>(engine.counters().forwards);
  return said;
}

}  // namespace lockstep

// For tests of kept forwards: a model with an engine that keeps them, a trainer that reads them and one that computes all. Tests only.
//   Bench bench(tiny_config("llama"), "cpu-f32", {.checkpoint_activations = true}, small_engine()); step_of(bench.reading, sample(bench.engine, requests));
#pragma once
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "model/kept_forwards.h"
#include "system/golden_tools.h"
#include "train/adapter_trainer.h"
#include "train/trainer.h"

namespace lockstep::kept_tests {

inline constexpr std::int64_t kPlenty = std::int64_t{1} << 30;

inline constexpr RowValues kBoth[] = {RowValues::segments, RowValues::operations};

// What is kept, within how many pages (-1: as many as come), and how much of it is compared.
struct Keeping {
  RowValues values = RowValues::segments;
  std::int64_t pages = -1, verify_every = 0;
};
inline std::shared_ptr<KeptForwards> kept_forwards(Runtime& runtime, const Keeping& keeping, std::int64_t page) {
  std::int64_t row = 0;
  for (const std::int64_t width : row_widths(runtime, keeping.values)) row += 4 * width;
  const std::int64_t bytes = keeping.pages < 0 ? kPlenty : keeping.pages * page * row;
  return std::make_shared<KeptForwards>(runtime, keeping.values,
                                        KeptForwards::Settings{.most_bytes = bytes, .page_positions = page, .verify_every = keeping.verify_every});
}

// Samples of three prompts, of which two begin alike.
inline std::vector<Request> sample_requests(std::int64_t vocabulary, int samples = 3) {
  RandomSequence draws(11, RandomStream::fuzz);
  std::vector<std::vector<std::int32_t>> prompts{random_tokens(draws, 13, vocabulary), random_tokens(draws, 5, vocabulary)};
  prompts.push_back(prompts[0]);
  for (const std::int32_t token : random_tokens(draws, 3, vocabulary)) prompts.back().push_back(token);
  std::vector<Request> requests;
  for (const auto& prompt : prompts)
    for (int sample = 0; sample < samples; ++sample)
      requests.push_back({.prompt = prompt, .sampling = {.seed = 5, .max_tokens = 3 + 4 * sample, .sample_index = sample}, .keep_forward = true});
  return requests;
}

inline std::vector<TrainSequence> sample(Engine& engine, const std::vector<Request>& requests) {
  const std::vector<Generation> generated = engine.generate(requests);
  std::vector<TrainSequence> data;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    std::vector<std::int32_t> tokens = requests[i].prompt;
    for (const GeneratedToken& token : generated[i].tokens) tokens.push_back(token.id);
    data.push_back(TrainSequence::next_token(tokens));
    for (std::size_t t = 0; t < data.back().weights.size(); ++t) data.back().weights[t] = 0.25f + 0.5f * static_cast<float>((t + i) % 3);
  }
  return data;
}

inline std::vector<std::vector<std::uint32_t>> bits(const std::vector<std::vector<float>>& rows) {
  std::vector<std::vector<std::uint32_t>> all;
  for (const auto& row : rows) {
    auto& own = all.emplace_back();
    for (const float x : row) own.push_back(std::bit_cast<std::uint32_t>(x));
  }
  return all;
}

struct Outcome {
  std::vector<std::vector<std::uint32_t>> scores, logprobs;
  double loss = 0;
  std::uint64_t gradient = 0, masters = 0;
  bool operator==(const Outcome&) const = default;
};
inline Outcome step_of(Trainer& trainer, const std::vector<TrainSequence>& data, double bias_rate = 0) {
  Outcome outcome;
  outcome.scores = bits(trainer.score(data));
  const ForwardBackwardResult result = trainer.forward_backward(data, {});
  outcome.logprobs = bits(result.logprobs);
  outcome.loss = result.loss;
  outcome.gradient = images_hash(trainer.ranks().runtime().model->manifest(), trainer.gradient_images());
  AdamParameters adam;
  adam.router_bias_rate = bias_rate;
  trainer.optim_step(adam);
  outcome.masters = trainer.state().master_hash();
  return outcome;
}

// A model, a trainer that computes all, on one rank, and one that reads what its engine keeps.
struct Bench {
  Runtime runtime;
  WeightImages masters;
  std::shared_ptr<KeptForwards> kept;
  Trainer plain, reading;
  Engine engine;

  explicit Bench(const Json& config, const std::string& profile = "cpu-bf16w", const TrainerOptions& options = {}, const EngineOptions& serving = {},
                 const Keeping& keeping = {}, const BackendOptions& backend = {.threads = 2})
      : runtime(backend, make_model(config), profile_by_name(profile), 96),
        masters(golden_weights(runtime.model->manifest(), 3)),
        kept(kept_forwards(runtime, keeping, serving.page_size)),
        plain(runtime, masters, alone(options)),
        reading(runtime, masters, with(options)),
        engine(runtime, reading.weights(), with(serving)) {}
  TrainerOptions with(TrainerOptions options) const {
    options.kept_forwards = kept;
    return options;
  }
  EngineOptions with(EngineOptions options) const {
    options.kept_forwards = kept;
    return options;
  }
  static TrainerOptions alone(TrainerOptions options) {
    options.ranks = {};
    return options;
  }
  SegmentRows rows() const { return reading.ranks().work().segment_rows; }
};

inline EngineOptions small_engine() { return {.page_size = 4, .cache_pages = 200}; }

// Flips a bit of what was kept of a row.
inline void plant_wrong_bit(Bench& bench, const TrainSequence& d, std::int64_t row, std::int64_t value) {
  std::vector<KeptForwards::Piece> pieces;
  const std::int64_t page = bench.kept->layout().positions(), end = row - row % page + page;  // all of its page, of which there is one
  ASSERT_TRUE(bench.kept->find({bench.reading.weights()->identity, 0}, d.tokens, row, end, pieces));
  const View at = bench.kept->layout().of_value(pieces[0].rows->view(), value).row_range(pieces[0].first, 1);
  Stream& stream = bench.runtime.backend.stream();
  std::vector<float> values = stream.read(at).get();
  values[2] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(values[2]) ^ (1u << 10));
  stream.write(at, values);
}

inline std::string refusal_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace lockstep::kept_tests

#include "parity/index_search.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "model/index_pattern.h"
#include "parity/engine_ways.h"

namespace lockstep {

namespace {
// Losses of choices of indexers, over one set of weights.
class Choices {
 public:
  Choices(Runtime& runtime, const WeightSet& weights, const std::vector<std::vector<std::int32_t>>& sequences, const ModelOptions& options,
          const StopToken& stop)
      : runtime_(runtime), whole_(runtime.model), weights_(weights), sequences_(sequences), options_(options), stop_(stop) {
    const std::vector<Parameter>& parameters = whole_->manifest().parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) by_name_[parameters[i].name] = weights.parameters[i];
  }
  ~Choices() { runtime_.model = whole_; }

  double loss(const std::vector<int>& indexers) {
    const std::shared_ptr<const Model> model = model_with_indexers(*whole_, indexers, options_);
    runtime_.model = model;
    Engine engine(runtime_, weights_of(*model), {});
    double sum = 0;
    std::int64_t count = 0;
    for (std::size_t s = 0; s < sequences_.size(); ++s) {
      stop_.throw_if_stopped();
      const std::vector<float> logprobs = with_context(fmt::format("sequence {}", s + 1), [&] { return engine_score(engine, sequences_[s], {.seed = s}); });
      for (const float logprob : logprobs) sum -= static_cast<double>(logprob);
      count += std::ssize(logprobs);
    }
    return sum / static_cast<double>(count);
  }

 private:
  // The weight set of a model that has only some of the parameters: shares their buffers.
  std::shared_ptr<const WeightSet> weights_of(const Model& model) const {
    auto some = std::make_shared<WeightSet>();
    some->version = weights_.version;
    for (const Parameter& p : model.manifest().parameters()) some->parameters.push_back(by_name_.at(p.name));
    return some;
  }

  Runtime& runtime_;
  const std::shared_ptr<const Model> whole_;
  std::map<std::string, Buffer> by_name_;
  const WeightSet& weights_;
  const std::vector<std::vector<std::int32_t>>& sequences_;
  const ModelOptions& options_;
  const StopToken& stop_;
};

// All choices of `count` of `layers`, the first of them always, those that leave out the last layers first.
std::vector<std::vector<int>> every_choice(const std::vector<int>& layers, std::size_t count) {
  std::vector<bool> taken(layers.size(), false);
  std::fill_n(taken.begin(), count, true);
  std::vector<std::vector<int>> all;
  do {
    if (!taken[0]) break;
    std::vector<int>& choice = all.emplace_back();
    for (std::size_t i = 0; i < layers.size(); ++i)
      if (taken[i]) choice.push_back(layers[i]);
  } while (std::prev_permutation(taken.begin(), taken.end()));
  return all;
}

// What is left of `layers` without one of them, the last left out first; the first layer stays.
std::vector<std::vector<int>> without_one(const std::vector<int>& layers) {
  std::vector<std::vector<int>> all;
  for (std::size_t i = layers.size(); i-- > 1;) {
    std::vector<int>& rest = all.emplace_back(layers);
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return all;
}

void check(const Model& model, const std::vector<int>& own, const std::vector<std::vector<std::int32_t>>& sequences, const IndexSearchSettings& settings) {
  if (own.empty()) refuse_without_indexer(model);
  if (settings.indexers < 1 || settings.indexers > std::ssize(own))
    fail(ErrorCode::invalid_argument, "indexers is {}, allowed are 1 to {}, as many as the model has", settings.indexers, own.size());
  if (settings.exhaustive && model.facts().layers > kExhaustiveLayers)
    fail(ErrorCode::invalid_argument, "the model has {} layers, allowed are {} where every choice is tried; without that indexers are left out one by one",
         model.facts().layers, kExhaustiveLayers);
  if (std::none_of(sequences.begin(), sequences.end(), [](const std::vector<std::int32_t>& tokens) { return tokens.size() > 1; }))
    fail(ErrorCode::invalid_argument, "no sequence has two tokens, so there is none to predict");
}
}  // namespace

IndexSearch search_indexers(Runtime& runtime, const WeightSet& weights, const std::vector<std::vector<std::int32_t>>& sequences,
                            const IndexSearchSettings& settings, const StopToken& stop) {
  const std::vector<int> own = indexer_layers(*runtime.model);
  check(*runtime.model, own, sequences, settings);
  IndexSearch search;
  search.layers = runtime.model->facts().layers;
  search.exhaustive = settings.exhaustive;
  search.sequences = std::ssize(sequences);
  for (const std::vector<std::int32_t>& tokens : sequences) search.tokens += std::max<std::int64_t>(0, std::ssize(tokens) - 1);
  const auto count = static_cast<std::size_t>(settings.indexers);
  std::int64_t of = 1;
  if (settings.exhaustive && count < own.size()) of += std::ssize(every_choice(own, count));
  else
    for (std::size_t n = own.size(); n > count; --n) of += static_cast<std::int64_t>(n) - 1;
  Choices choices(runtime, weights, sequences, settings.model, stop);
  const auto best_of = [&](const std::vector<std::vector<int>>& all) {
    IndexSearch::Step best;
    for (const std::vector<int>& layers : all) {
      const double loss = choices.loss(layers);
      if (best.layers.empty() || loss < best.loss) best = {layers, loss};
      ++search.tried;
      if (settings.on_tried) settings.on_tried(search.tried, of);
    }
    search.steps.push_back(best);
  };
  best_of({own});
  if (settings.exhaustive && count < own.size()) best_of(every_choice(own, count));
  while (search.steps.back().layers.size() > count) best_of(without_one(search.steps.back().layers));
  return search;
}

nlohmann::ordered_json to_json(const IndexSearch& search) {
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  for (const IndexSearch::Step& step : search.steps)
    steps.push_back({{"indexers", step.layers.size()}, {"pattern", index_pattern(search.layers, step.layers)}, {"layers", step.layers}, {"loss", step.loss}});
  return {{"search", search.exhaustive ? "exhaustive" : "greedy"},
          {"sequences", search.sequences},
          {"tokens", search.tokens},
          {"tried", search.tried},
          {"steps", steps}};
}

std::string to_text(const IndexSearch& search) {
  std::string text = fmt::format("{} sequences, {} tokens scored, {} choices tried\n\n{:<10}{:<12}{:<12}{}\n", search.sequences, search.tokens, search.tried,
                                 "indexers", "loss", "more", "pattern (F: has one, S: shares the last one's selection)");
  const double first = search.steps.front().loss;
  for (const IndexSearch::Step& step : search.steps)
    text += fmt::format("{:<10}{:<12.6f}{:<+12.6f}{}\n", step.layers.size(), step.loss, step.loss - first, index_pattern(search.layers, step.layers));
  return text;
}

}  // namespace lockstep

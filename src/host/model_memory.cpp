#include "host/model_memory.h"

#include <algorithm>
#include <numeric>

#include "model/compute_copy.h"
#include "model/sharding.h"
#include "model/value_head.h"
#include "train/adapter_trainer.h"
#include "train/value_loss.h"
#include "trained/led_model.h"

namespace lockstep {
namespace {
constexpr std::int64_t kPage = 16;  // TrainerOptions::page_size
constexpr std::int64_t kLeastRows = 64, kMostRows = 16384, kFactor = 4;

// Now, and the most of a piece of work, which every rank may reach at the same moment.
class Meter {
 public:
  Meter(const RankRuntimes& ranks, int count) {
    for (int rank = 0; rank < count; ++rank) ranks_.push_back(&ranks.runtime(rank).backend.device().memory());
  }
  std::int64_t now() const {
    std::int64_t bytes = 0;
    for (const MemoryAccounts* memory : ranks_)
      for (int c = 0; c < kMemoryCategories; ++c)
        if (const auto category = static_cast<MemoryCategory>(c); category != MemoryCategory::optimizer_file) bytes += memory->current(category);
    return bytes;
  }
  template <class F>
  std::int64_t most_of(const F& work) {
    for (MemoryAccounts* memory : ranks_) memory->reset_peaks();
    work();
    std::int64_t bytes = 0;
    for (const MemoryAccounts* memory : ranks_) bytes += memory->peak_of_all();
    return bytes;
  }

 private:
  std::vector<MemoryAccounts*> ranks_;
};

std::int64_t elements_of(const Manifest& manifest) {
  std::int64_t elements = 0;
  for (const Parameter& p : manifest.parameters()) elements += p.size();
  return elements;
}

// Sequences that begin with different tokens: rows of equal prefixes would be computed once, which nobody can count on.
std::vector<TrainSequence> sequences_of(std::int64_t rows, std::int64_t length, std::int64_t vocabulary) {
  std::vector<TrainSequence> data;
  for (; rows > 0; rows -= length) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(std::min(rows, length) + 1));
    const auto number = static_cast<std::int64_t>(data.size());
    tokens[0] = static_cast<std::int32_t>(number % vocabulary);
    tokens[1] = static_cast<std::int32_t>(number / vocabulary % vocabulary);
    data.push_back(TrainSequence::next_token(tokens));
    data.back().advantages = data.back().old_logprobs = data.back().weights;  // of a critic: returns, values
  }
  return data;
}

void take_gradient(TrainedModel& model, const std::vector<TrainSequence>& data, bool values) {
  LossOptions loss;
  if (values) loss = value_loss({{"value_clip", 1.0}});
  loss.normaliser = 1;
  std::vector<std::size_t> places(data.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  model.begin({.sequences = data.size()}, loss);
  model.add(places, data);
  model.finish();
}
}  // namespace

void MemoryByRows::add(std::int64_t rows, std::int64_t bytes) {
  if (!points_.empty() && points_.back().first == rows) points_.back().second = std::max(points_.back().second, bytes);
  else points_.emplace_back(rows, bytes);
}

std::int64_t MemoryByRows::bytes(std::int64_t rows) const {
  if (points_.empty()) return 0;
  if (points_.size() == 1 || rows <= points_.front().first) return points_.front().second;
  std::size_t i = 1;
  while (i + 1 < points_.size() && points_[i].first < rows) ++i;  // beyond the last: its line goes on
  const auto [rows_a, bytes_a] = points_[i - 1];
  const auto [rows_b, bytes_b] = points_[i];
  const double slope = static_cast<double>(bytes_b - bytes_a) / static_cast<double>(rows_b - rows_a);
  return bytes_a + static_cast<std::int64_t>(slope * static_cast<double>(rows - rows_a)) + 1;
}

std::int64_t memory_rows(const TrainSequence* begin, const TrainSequence* end) {
  std::int64_t rows = 0;
  for (; begin != end; ++begin) {
    const auto tokens = static_cast<std::int64_t>(begin->tokens.size());
    // Columns of a loss over several targets a row: eight numbers of four bytes, where a row has some thousand.
    rows += (tokens + kPage - 1) / kPage * kPage + (begin->targets_per_row > 8 ? tokens * begin->targets_per_row / 64 : 0);
  }
  return rows;
}

std::int64_t kept_set_bytes(const TrainSequence* begin, const TrainSequence* end, std::int64_t vocabulary) {
  constexpr std::int64_t kWord = 4, kMostLeaves = 16;
  std::int64_t rows = 0, words = 0, most = 0;
  for (; begin != end; ++begin) {
    rows += std::ssize(begin->tokens);
    for (const KeptTokens& kept : begin->kept_tokens) {
      words += std::ssize(kept.words);
      most = std::max<std::int64_t>(most, kept.count);
    }
  }
  if (words == 0) return 0;
  // The piece has a copy of the sets, and so has what is uploaded, here and on the device; with it goes where each row's set begins.
  const std::int64_t uploaded = 3 * words + 8 * rows;
  // The kept logits of the rows that the head has at once (ForwardPass::finish), where it sums leaves apart: with an adapter of its own, or on ranks.
  const std::int64_t at_once = std::min(rows, std::max<std::int64_t>(192, (std::int64_t{1} << 20) / vocabulary));
  return kWord * (uploaded + at_once * std::min(vocabulary, kMostLeaves * most));
}

ModelMemoryPlanner::ModelMemoryPlanner(const TrainingBase& base) : local_(rank_runtimes(base)->ranks().local()) {
  const Runtime& runtime = *base.opened.runtime;
  counting_.opened.model = base.opened.model;
  const Manifest& manifest = counting_.opened.model->manifest();
  counting_.opened.initial = [count = manifest.parameters().size()] { return WeightImages(count); };  // a counting device reads no values
  counting_.opened.runtime =
      std::make_shared<Runtime>(BackendOptions{.kind = BackendKind::counting, .threads = 1}, counting_.opened.model, runtime.profile, runtime.max_positions);
  counting_.weights = counting_.opened.weight_set();
  counting_.options = base.options;
  counting_.options.kept = std::make_shared<KeptPasses>(0);
  counting_.options.kept_forwards = nullptr;
  counting_.ranks = std::make_shared<RankRuntimes>(*counting_.opened.runtime, base.options.ranks);  // threads, wherever the real ones are
}

template <class F>
void ModelMemoryPlanner::each_sharding(const F& f) const {
  const Ranks& ranks = counting_.ranks->ranks();
  if (ranks.layout().replica() == 1) return;
  for (int rank = 0; rank < std::min(local_, ranks.layout().replica()); ++rank)
    f(Sharding(*counting_.opened.model, counting_.opened.runtime->profile, ranks.place(rank)));
}

std::int64_t ModelMemoryPlanner::cutting() const {
  std::int64_t shares = 0;
  each_sharding([&](const Sharding& one) { shares += elements_of(one.manifest()); });
  if (shares == 0) return 0;
  const Manifest& whole = counting_.opened.model->manifest();
  return computed_bytes(whole, counting_.opened.runtime->profile) + (elements_of(whole) + shares) * static_cast<std::int64_t>(sizeof(float));
}

const ModelMemory& ModelMemoryPlanner::of(const ModelSettings& settings) {
  const std::string kind =
      fmt::format("{} {} {} {} {} {}", settings.rank, settings.train_attn, settings.train_mlp, settings.train_unembed, settings.base_only, settings.optimizer);
  const auto known = known_.find(kind);
  return known != known_.end() ? known->second : known_.emplace(kind, count(settings)).first->second;
}

ModelMemory ModelMemoryPlanner::count(const ModelSettings& wanted) {
  ModelSettings settings = wanted;
  if (!settings.seed) settings.seed = 0;
  ModelMemory memory;
  Meter meter(*counting_.ranks, local_);
  counting_.frozen = nullptr;  // what an earlier kind's turns left there
  const std::int64_t without = meter.now();
  if (settings.rank > 0 || settings.base_only) frozen_passes(counting_);
  const std::int64_t before = meter.now();
  memory.base = before - without;
  const std::unique_ptr<TrainedModel> model = make_trained_model_here(counting_, settings);
  const std::int64_t made = meter.now();
  memory.resting = made - before;
  const SamplerWeights sampled = settings.base_only ? SamplerWeights{counting_.weights} : model->sampler_weights();
  for (const Buffer& b : sampled.adapter ? sampled.adapter->parameters : sampled.weights->parameters)
    memory.weights += b.view().size() * b.view().element_bytes;
  memory.copied = meter.now() - made;
  std::int64_t elements = elements_of(model->manifest());
  const Profile& profile = counting_.opened.runtime->profile;
  each_sharding([&](const Sharding& base) {
    if (settings.base_only) return;  // the engine has its shares already
    if (const AdapterLayout* adapter = model->adapter()) {
      const std::int64_t own = elements_of(Sharding(*adapter, base).manifest());
      memory.weights += own * static_cast<std::int64_t>(sizeof(float));
      elements += own;
    } else {
      memory.weights += computed_bytes(base.manifest(), profile);
      elements += elements_of(base.manifest());
    }
  });
  // The images of weights and moments on the host, whole and as the ranks' shares, and the weights that are read beside those that were there.
  memory.reading =
      elements * 3 * static_cast<std::int64_t>(sizeof(float)) + (settings.base_only ? 0 : elements * static_cast<std::int64_t>(sizeof(float)) + memory.weights);

  const std::int64_t vocabulary = counting_.opened.model->facts().vocabulary;
  const std::int64_t positions = counting_.opened.runtime->max_positions;
  const bool values = has_value_head(*counting_.opened.model);
  for (std::int64_t rows = kLeastRows; rows <= std::max(kMostRows, kFactor * positions); rows *= kFactor) {
    for (const std::int64_t length : {std::min(rows, positions - 1) / kPage * kPage, kPage}) {
      if (length < kPage) continue;
      const std::vector<TrainSequence> data = sequences_of(rows, length, vocabulary);
      const std::int64_t scored = meter.most_of([&] { model->score(data); });
      memory.forward.add(rows, scored - meter.now());
      memory.pass.add(rows, meter.now() - made);
      if (settings.base_only) continue;
      const std::int64_t most = meter.most_of([&] { take_gradient(*model, data, values); }), held = meter.now();
      const std::int64_t stepped = meter.most_of([&] { model->optim_step({}); }), rests = meter.now();
      memory.turn.add(rows, most - held);
      memory.pass.add(rows, rests - made);
      memory.alone = std::max(memory.alone, held - rests);
      memory.step = std::max(memory.step, stepped - held);
    }
  }
  if (settings.base_only) {
    memory.turn = memory.forward;
    return memory;
  }
  // Two gradients before a step: accumulators. What a turn takes beside them is no more than beside the others.
  const std::vector<TrainSequence> data = sequences_of(kLeastRows, std::min(kLeastRows, std::max(kPage, (positions - 1) / kPage * kPage)), vocabulary);
  take_gradient(*model, data, values);
  take_gradient(*model, data, values);
  const std::int64_t held = meter.now();
  const std::int64_t stepped = meter.most_of([&] { model->optim_step({}); });
  memory.accumulators = std::max(memory.alone, held - meter.now());
  memory.step = std::max(memory.step, stepped - held);
  return memory;
}

}  // namespace lockstep

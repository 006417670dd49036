#include "parity/index_overlap.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "model/operations/attention_observer.h"
#include "numerics/elementary_double.h"

namespace lockstep {

namespace {
constexpr std::int64_t kPageSize = 16;

std::int64_t common_keys(const std::int32_t* a, const std::int32_t* b, std::int64_t n) {
  std::int64_t common = 0;
  for (std::int64_t i = 0, j = 0; i < n && j < n;) {
    common += a[i] == b[j];
    const bool first = a[i] <= b[j], second = b[j] <= a[i];
    i += first, j += second;
  }
  return common;
}

// Sums over the counted rows of all forwards, in the order of rows.
class SelectionWatch final : public AttentionObserver {
 public:
  explicit SelectionWatch(std::int64_t top_k) : top_k_(top_k) {}

  void begin_forward(Backend& backend, const Batch& batch) override {
    backend_ = &backend;
    const std::vector<std::int32_t> position = backend.stream().read_ints(batch.rows().position).get();
    counted_.clear();
    for (std::size_t row = 0; row < position.size(); ++row)
      if (position[row] >= top_k_) counted_.push_back(static_cast<std::int64_t>(row));
    rows_ += std::ssize(counted_);
    selected_.clear();
  }
  void operation(const Operation& operation) override {
    if (operation.name == "index_select") owner_ = operation.layer;
  }
  void attended(const Attended& seen) override {
    if (counted_.empty()) return;
    if (seen.layer == owner_) selected_[owner_] = backend_->stream().read_ints(seen.positions).get();
    const std::vector<float> some = backend_->stream().read(seen.log_sum).get(), all = backend_->stream().read(seen.log_total).get();
    const std::int64_t heads = seen.log_sum.cols;
    LayerSums& sums = layers_[seen.layer];
    sums.selects = owner_;
    sums.mass.resize(static_cast<std::size_t>(heads));
    for (const std::int64_t row : counted_)
      for (std::int64_t h = 0; h < heads; ++h) {
        const auto at = static_cast<std::size_t>(row * heads + h);
        sums.mass[static_cast<std::size_t>(h)] += std::min(1.0, exp_double(static_cast<double>(some[at]) - static_cast<double>(all[at])));
      }
  }
  void end_forward() {
    for (auto a = selected_.begin(); a != selected_.end(); ++a)
      for (auto b = std::next(a); b != selected_.end(); ++b) {
        std::int64_t& common = common_[{a->first, b->first}];
        for (const std::int64_t row : counted_) common += common_keys(a->second.data() + row * top_k_, b->second.data() + row * top_k_, top_k_);
      }
  }

  IndexOverlap result() const {
    IndexOverlap overlap;
    overlap.top_k = top_k_, overlap.rows = rows_;
    const auto rows = static_cast<double>(rows_);
    for (const auto& [layer, sums] : layers_) {
      double mass = 0;
      for (const double head : sums.mass) mass += head;
      overlap.layers.push_back(
          {layer, sums.selects, mass / (rows * static_cast<double>(sums.mass.size())), *std::min_element(sums.mass.begin(), sums.mass.end()) / rows});
    }
    std::map<int, IndexOverlap::Distance> distances;
    for (const auto& [layers, common] : common_) {
      const double share = static_cast<double>(common) / (rows * static_cast<double>(top_k_));
      overlap.pairs.push_back({layers.first, layers.second, share});
      IndexOverlap::Distance& distance = distances[layers.second - layers.first];
      distance.common += share;
      ++distance.pairs;
    }
    for (auto& [distance, sums] : distances) overlap.distances.push_back({distance, sums.pairs, sums.common / static_cast<double>(sums.pairs)});
    return overlap;
  }

 private:
  struct LayerSums {
    int selects = 0;
    std::vector<double> mass;  // by head
  };
  std::int64_t top_k_, rows_ = 0;
  Backend* backend_ = nullptr;
  int owner_ = -1;                                     // of the selection that layers use now
  std::vector<std::int64_t> counted_;                  // rows of this forward
  std::map<int, std::vector<std::int32_t>> selected_;  // of this forward, by layer
  std::map<int, LayerSums> layers_;
  std::map<std::pair<int, int>, std::int64_t> common_;
};

void check_lengths(const std::vector<std::vector<std::int32_t>>& sequences, std::int64_t top_k) {
  std::size_t longest = 0;
  for (const std::vector<std::int32_t>& tokens : sequences) longest = std::max(longest, tokens.size());
  if (static_cast<std::int64_t>(longest) <= top_k)
    fail(ErrorCode::invalid_argument,
         "the longest sequence has {} tokens, and a row selects every key while it sees at most {}; needed is one of at least {} tokens", longest, top_k,
         top_k + 1);
}
}  // namespace

IndexOverlap measure_index_overlap(Runtime& runtime, const WeightSet& weights, const std::vector<std::vector<std::int32_t>>& sequences, const StopToken& stop,
                                   std::int64_t rows_at_once) {
  const Model& model = *runtime.model;
  const std::int64_t top_k = model.facts().select_top_k;
  if (!model.has_indexer())
    fail(ErrorCode::unsupported, "a model of family '{}' here has no indexer, and attends to every key; allowed are models with 'index_topk'", model.family());
  check_lengths(sequences, top_k);
  SelectionWatch watch(top_k);
  struct Guard {
    Runtime& runtime;
    ~Guard() { runtime.observer = nullptr; }
  } guard{runtime};
  runtime.observer = &watch;
  std::int64_t tokens = 0;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const std::vector<std::int32_t>& sequence = sequences[s];
    const std::int64_t length = std::ssize(sequence), pages = (length + kPageSize - 1) / kPageSize;
    KvCache cache(runtime.backend, model.cache_shapes(runtime.profile), runtime.profile, pages, kPageSize);
    for (std::int64_t begin = 0; begin < length; begin += rows_at_once) {
      stop.throw_if_stopped();
      SequenceSlice slice;
      slice.tokens.assign(sequence.begin() + begin, sequence.begin() + std::min(length, begin + rows_at_once));
      slice.begin = begin;
      for (std::int64_t p = 0; p < pages; ++p) slice.pages.push_back(static_cast<std::int32_t>(p));
      const Batch batch(runtime.backend, {slice}, kPageSize, false);
      Context context = runtime.context(weights, cache, batch);
      model.forward(context);
      watch.end_forward();
      const std::vector<std::int32_t> flags = runtime.backend.stream().read_ints(context.flags()).get();
      const auto bad = std::find_if(flags.begin(), flags.end(), [](std::int32_t flag) { return flag != 0; });
      if (bad != flags.end())
        fail(ErrorCode::numeric, "sequence {}, token {}: a value is not a number or not finite (flags {})", s + 1, begin + (bad - flags.begin()) + 1, *bad);
    }
    tokens += length;
  }
  IndexOverlap overlap = watch.result();
  overlap.sequences = std::ssize(sequences);
  overlap.tokens = tokens;
  return overlap;
}

nlohmann::ordered_json to_json(const IndexOverlap& overlap) {
  using Json = nlohmann::ordered_json;
  Json layers = Json::array(), pairs = Json::array(), distances = Json::array();
  for (const IndexOverlap::Layer& l : overlap.layers)
    layers.push_back({{"layer", l.layer}, {"selected_by", l.selects}, {"mass", l.mass}, {"least_head_mass", l.least_head}});
  for (const IndexOverlap::Pair& p : overlap.pairs) pairs.push_back({{"layers", {p.first, p.second}}, {"distance", p.second - p.first}, {"common", p.common}});
  for (const IndexOverlap::Distance& d : overlap.distances) distances.push_back({{"distance", d.distance}, {"pairs", d.pairs}, {"common", d.common}});
  return {
      {"index_topk", overlap.top_k}, {"sequences", overlap.sequences}, {"tokens", overlap.tokens}, {"rows", overlap.rows}, {"layers", layers}, {"pairs", pairs},
      {"distances", distances}};
}

std::string to_text(const IndexOverlap& overlap) {
  std::string text = fmt::format("{} sequences, {} tokens, of which {} see more than the {} keys that are selected\n\n", overlap.sequences, overlap.tokens,
                                 overlap.rows, overlap.top_k);
  text += fmt::format("{:<8}{:<14}{:<26}{}\n", "layer", "selected by", "dense attention inside", "of the head with least");
  for (const IndexOverlap::Layer& l : overlap.layers) text += fmt::format("{:<8}{:<14}{:<26.4f}{:.4f}\n", l.layer, l.selects, l.mass, l.least_head);
  if (overlap.pairs.empty()) return text + "\none indexer: no pair of layers to compare\n";
  text += fmt::format("\n{:<12}{:<10}{}\n", "distance", "pairs", "keys in common");
  for (const IndexOverlap::Distance& d : overlap.distances) text += fmt::format("{:<12}{:<10}{:.4f}\n", d.distance, d.pairs, d.common);
  text += fmt::format("\n{:<12}{}\n", "layers", "keys in common");
  for (const IndexOverlap::Pair& p : overlap.pairs) text += fmt::format("{:<12}{:.4f}\n", fmt::format("{}, {}", p.first, p.second), p.common);
  return text;
}

}  // namespace lockstep

// Low-rank adapters (LoRA, Hu et al. 2021, unmerged): y = W x + B (s (A x)), s = alpha / rank, over frozen weights.
//   auto layout = std::make_shared<const AdapterLayout>(model->manifest(), AdapterSettings{.rank = 16});
//   auto adapter = make_adapter(backend, layout, initial_adapter(*layout, seed), 0);
// Many adapters share one set of weights at once; each is small, fp32, and an immutable version like any weights. AdapterLayout says which
// parameters of a model are adapted and what the adapter's tensors are called (PEFT's names); AdapterWeights are the values.
// Shapes: A [rank, inputs], B [outputs, rank] of each matrix; of kv_b one A and B [H * (nope + v), rank], of experts one pair each.
// Never adapted: the indexer, routers, norms, the input embedding (of a tied table only its use as head).
// Knows no file and no training. Plain values, any thread; buffers are their device's.
#pragma once
#include "model/weights.h"

namespace lockstep {

struct AdapterSettings {
  std::int64_t rank = 16;                                  // 1 to 256
  double alpha = 32;                                       // above 0
  bool attention = true, mlp = true, unembedding = false;  // at least one
};

class AdapterLayout {
 public:
  // Errors invalid_argument: a value outside its range, nothing adapted.
  AdapterLayout(const Manifest& model, const AdapterSettings& settings);
  // One rank's part of `whole`: `shares` has the shapes that this rank holds, by the same ids (model/sharding.h).
  AdapterLayout(const AdapterLayout& whole, Manifest shares);

  const AdapterSettings& settings() const { return settings_; }
  float scale() const { return static_cast<float>(settings_.alpha / static_cast<double>(settings_.rank)); }
  // A and B of every target. Ranks cut them as the weight that they adapt: A by its inputs, B by its outputs, both by experts, B by heads.
  const Manifest& manifest() const { return manifest_; }
  // The adapter's A and B of each ParameterId of the model; -1: not adapted.
  struct Place {
    ParameterId a = -1, b = -1;
  };
  const Place& place(ParameterId base) const { return places_[static_cast<std::size_t>(base)]; }
  // Error invalid_argument when the layout was made for a model of other shapes.
  void check_fits(const Manifest& model) const;
  // Last parts of the names of adapted modules, ascending, as PEFT's target_modules: "k_proj", "lm_head".
  std::vector<std::string> modules() const;

 private:
  AdapterSettings settings_;
  Manifest manifest_;
  std::vector<Place> places_;
};

struct AdapterWeights {
  std::shared_ptr<const AdapterLayout> layout;
  std::uint64_t version = 0;
  std::vector<Buffer> parameters;  // f32, in panels, by ParameterId of the layout's manifest
  const std::uint64_t identity = WeightSet::next_identity();

  AdapterWeights() = default;
  AdapterWeights(const AdapterWeights&) = delete;
  PackedWeight packed(ParameterId id, const Profile& profile) const;  // of the layout's manifest
};

// A: uniform with bound 1 / sqrt(inputs) (PEFT's Kaiming), a function of (seed, tensor name, index) alone; B: +0, so that a new
// adapter changes nothing.
WeightImages initial_adapter(const AdapterLayout& layout, std::uint64_t seed);
std::shared_ptr<const AdapterWeights> make_adapter(Backend& backend, std::shared_ptr<const AdapterLayout> layout, const WeightImages& images,
                                                   std::uint64_t version);

}  // namespace lockstep

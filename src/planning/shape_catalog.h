// The catalog of training shapes: which model is trained in which mode, on which hardware.
//   ShapeCatalog catalog = ShapeCatalog::published();  catalog.add(text, "mine.toml");
//   const TrainingShape& shape = catalog.shape("qwen3-8b-128k");
// Rows are those of shapes/catalog.toml, which is compiled into the program, and of a user's own files. Every full-parameter row may have a
// forward-only reference beside it. Plain values; const is safe from any thread.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include "model/config_reader.h"
#include "planning/model_dimensions.h"
#include "planning/shape_memory.h"

namespace lockstep {

// Sizes that are counted when they are first asked for: large models have tens of thousands of tensors. Any thread.
class SizesOnDemand {
 public:
  explicit SizesOnDemand(std::function<ModelSizes()> count) : count_(std::move(count)) {}
  const ModelSizes& get() const {
    std::call_once(once_, [this] { sizes_ = count_(); });
    return sizes_;
  }

 private:
  std::function<ModelSizes()> count_;
  mutable std::once_flag once_;
  mutable ModelSizes sizes_;
};

struct ShapeModel {
  std::string id, name, architecture, source;  // source: where the dimensions are from
  std::vector<std::string> names;              // other names that mean it
  Json config;                                 // config.json, of a family that this program runs; else null
  ModelDimensions dimensions;                  // of one that it does not run
  std::shared_ptr<const SizesOnDemand> counted;
  const ModelSizes* sizes() const { return counted ? &counted->get() : nullptr; }  // null: dimensions are not known
};

struct Accelerator {
  std::string id;
  std::int64_t memory = 0;  // bytes; 0: that of its machine
};

struct TrainingShape {
  std::string id, model;  // ShapeModel::id
  ShapeMode mode = ShapeMode::policy;
  std::int64_t context = 0;           // tokens; 0: not known
  std::string accelerator;            // Accelerator::id; empty: not known
  std::int64_t accelerators = 0;      // 0: not known
  std::optional<ShapeLayout> layout;  // none: not known, so the first that fits
  bool int4_experts = false;
  std::string source;  // where the row is from
  std::int64_t nodes() const { return (accelerators + 7) / 8; }
};
// POLICY_TRAINER, LORA_TRAINER, FORWARD_ONLY: the words of the control plane. "policy", "lora", "reference": of files and the command line.
std::string_view trainer_mode(ShapeMode mode);
std::string_view shape_mode_name(ShapeMode mode);

class ShapeCatalog {
 public:
  static ShapeCatalog published();
  // Of a file's text. Errors invalid_argument with label and line: no TOML, an unknown key, a value that is not allowed, a model or an
  // accelerator that is not there; already_exists: an id that is. Nothing is added then.
  void add(std::string_view toml, const std::string& label);
  // Adds a row that does not come from a file; replaces one of the same id. Its model is added when it is new.
  void put(const TrainingShape& shape);

  const std::vector<TrainingShape>& shapes() const { return shapes_; }
  const std::vector<ShapeModel>& models() const { return models_; }
  // Errors not_found, with the nearest name.
  const TrainingShape& shape(const std::string& id) const;
  // By id or any name, without regard to case, account, organisation or punctuation ("accounts/x/models/qwen3p5-35b-a3b").
  const ShapeModel& model(const std::string& name) const;
  const ShapeModel* find_model(const std::string& name) const;
  // Finds it by id or a part of it ("B200").
  const Accelerator& accelerator(const std::string& name) const;
  // The memory that a shape takes on its hardware. None when dimensions, context or hardware are not known; on hardware whose memory is that of this
  // machine the plan's memory is given with `fits` true.
  std::optional<ShapeFit> fit(const TrainingShape& shape, std::int64_t lora_rank = 16) const;

 private:
  void add_parsed(std::string_view toml, const std::string& label);
  std::vector<ShapeModel> models_;
  std::vector<Accelerator> accelerators_;
  std::vector<TrainingShape> shapes_;
};

inline constexpr std::size_t kMostShapeBytes = std::size_t{4} << 20;  // of a file

// shapes/catalog.toml, as it was when the program was built.
std::string_view published_shapes_toml();

}  // namespace lockstep

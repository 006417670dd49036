// Parses a catalog file: TOML to rows, each key and value checked.
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <algorithm>

#include "base/choice.h"
#include "base/error.h"
#include "model/archs/registry.h"
#include "planning/shape_catalog.h"
#include "planning/shape_configs.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostRows = 10'000;  // of a kind
constexpr std::int64_t kMostOfAny = std::int64_t{1} << 40;

// A table whose keys are read one by one; unread keys are refused at the end.
class FileTable {
 public:
  FileTable(const toml::node& node, std::string where) : where_(std::move(where)), table_(node.as_table()) {
    if (!table_) fault(node, "is no table");
  }
  bool has(const std::string& key) {
    known_.push_back(key);
    return table_->contains(key);
  }
  std::string text(const std::string& key, bool needed = false) {
    return checked<std::string>(key, needed, {}, "a text of 1 to 200 characters", [](const std::string& t) { return !t.empty() && t.size() <= 200; });
  }
  std::int64_t integer(const std::string& key, std::int64_t low, std::int64_t absent = 0) {
    return checked<std::int64_t>(key, false, absent, fmt::format("an integer from {} to {}", low, kMostOfAny),
                                 [low](std::int64_t v) { return v >= low && v <= kMostOfAny; });
  }
  bool flag(const std::string& key) {
    return checked<bool>(key, false, false, "true or false", [](bool) { return true; });
  }
  std::vector<std::string> texts(const std::string& key) {
    std::vector<std::string> all;
    if (!has(key)) return all;
    const toml::array* list = (*table_)[key].as_array();
    if (!list || list->size() > 100) fault(*table_->get(key), key + " is no list of at most 100 texts");
    for (const toml::node& one : *list) {
      if (!one.is_string()) fault(one, key + " is no list of texts");
      all.push_back(one.as_string()->get());
    }
    return all;
  }
  bool knows(std::string_view key) const { return std::find(known_.begin(), known_.end(), key) != known_.end(); }
  const toml::node& node(const std::string& key) const { return *table_->get(key); }
  [[noreturn]] void fault(const toml::node& at, const std::string& what) const {
    fail(ErrorCode::invalid_argument, "line {}: {}: {}", at.source().begin.line, where_, what);
  }
  [[noreturn]] void fault(const std::string& what) const { fault(*table_, what); }
  const std::string& where() const { return where_; }
  void done() const {
    for (const auto& [key, value] : *table_)
      if (std::find(known_.begin(), known_.end(), key.str()) == known_.end())
        fault(value, fmt::format("unknown key '{}'{}", std::string(key.str()).substr(0, 60), did_you_mean(key.str(), known_)));
  }

 private:
  template <class T, class Allowed>
  T checked(const std::string& key, bool needed, T absent, const std::string& allowed, Allowed&& is_allowed) {
    if (!has(key)) {
      if (needed) fault(key + " is missing");
      return absent;
    }
    const std::optional<T> value = table_->get(key)->template value_exact<T>();
    if (!value || !is_allowed(*value)) fault(*table_->get(key), fmt::format("{} must be {}", key, allowed));
    return *value;
  }

  std::string where_;
  const toml::table* table_;
  std::vector<std::string> known_;
};

// A key's value as config.json has it. Only what TOML and JSON both have.
Json json_of(const FileTable& table, const toml::node& node) {
  if (const auto value = node.value_exact<std::int64_t>()) return *value;
  if (const auto value = node.value_exact<double>()) return *value;
  if (const auto value = node.value_exact<bool>()) return *value;
  if (const auto value = node.value_exact<std::string>()) return *value;
  Json json;
  if (const toml::array* list = node.as_array()) {
    json = Json::array();
    for (const toml::node& one : *list) json.push_back(json_of(table, one));
  } else if (const toml::table* inner = node.as_table()) {
    json = Json::object();
    for (const auto& [key, one] : *inner) json[std::string(key.str())] = json_of(table, one);
  } else {
    table.fault(node, "a date or a time, which config.json has no value for");
  }
  return json;
}

ModelSizes sizes_of_config(const Json& config, std::int64_t vision_parameters) {
  ModelSizes sizes = model_sizes(*make_model(config));
  sizes.rest += vision_parameters;
  return sizes;
}

// A family that this program runs: all keys that the family reads may stand here, under their own names.
Json read_config(FileTable& table, const toml::node& node, const std::string& model_type) {
  Json config = {{"model_type", model_type}};
  for (const auto& [key, value] : *node.as_table())
    if (!table.knows(key.str())) config[std::string(key.str())] = json_of(table, value);
  for (const auto& [key, use] : config_keys_of(model_type)) table.has(key);
  table.done();
  try {
    make_model(config);
  } catch (const Error& e) {
    table.fault(e.message());
  }
  return config;
}

ShapeModel read_model(const std::string& id, const toml::node& node) {
  FileTable table(node, fmt::format("model.{}", id));
  ShapeModel model{
      .id = id, .name = table.text("name"), .architecture = table.text("architecture"), .source = table.text("source"), .names = table.texts("names")};
  if (model.name.empty()) model.name = id;
  const std::string config = table.text("config"), model_type = table.text("model_type");
  const std::int64_t vision = table.integer("vision_parameters", 0);
  std::vector<std::string> runs;
  for (const Family& family : families()) runs.push_back(family.model_type);
  if (!config.empty()) {
    if (!model_type.empty()) table.fault("config and model_type are both there, allowed is one of them");
    table.done();
    model.config = shape_config(config);
    model.counted = std::make_shared<const SizesOnDemand>([json = model.config, vision] { return sizes_of_config(json, vision); });
    return model;
  }
  if (std::find(runs.begin(), runs.end(), model_type) != runs.end()) {
    model.config = read_config(table, node, model_type);
    model.counted = std::make_shared<const SizesOnDemand>([json = model.config, vision] { return sizes_of_config(json, vision); });
    return model;
  }
  ModelDimensions& d = model.dimensions;
  d.model_type = model_type;
  for (const DimensionKey& key : dimension_keys()) d.*key.member = table.integer(key.name, 0);
  d.tie_word_embeddings = table.flag("tie_word_embeddings");
  table.done();
  if (model_type.empty()) return model;
  const std::vector<std::string> formulas = dimension_families();
  if (std::find(formulas.begin(), formulas.end(), model_type) == formulas.end()) {
    runs.insert(runs.end(), formulas.begin(), formulas.end());
    table.fault(fmt::format("model_type is '{}', {}", model_type, allowed_are(model_type, runs)));
  }
  try {
    model.counted = std::make_shared<const SizesOnDemand>([sizes = model_sizes(d)] { return sizes; });
  } catch (const Error& e) {
    table.fault(e.message());
  }
  return model;
}

ShapeLayout read_layout(const toml::node& node, const std::string& where) {
  FileTable table(node, where + ".layout");
  const ShapeLayout layout{.tp = table.integer("tp", 1, 1), .pp = table.integer("pp", 1, 1), .cp = table.integer("cp", 1, 1), .ep = table.integer("ep", 1, 1)};
  table.done();
  return layout;
}

// Ids are part of paths of the control plane.
void check_shape_id(const FileTable& table, const std::string& id) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
  if (id.size() > 63 || !std::all_of(id.begin(), id.end(), plain))
    table.fault(fmt::format("id is '{}', allowed are 1 to 63 of a-z, 0-9 and -", id.substr(0, 80)));
}

// A row of a file, and its reference.
std::vector<TrainingShape> read_shape(const ShapeCatalog& catalog, const toml::node& node) {
  FileTable table(node, "shape");
  TrainingShape shape{.id = table.text("id", true)};
  FileTable named(node, "shape " + shape.id.substr(0, 80));
  check_shape_id(named, shape.id);
  named.has("id");
  const std::string model_name = named.text("model", true), mode = named.text("mode", true), accelerator_name = named.text("accelerator"),
                    experts = named.text("experts");
  shape.model = catalog.model(model_name).id;
  const std::vector<std::string> modes = {"policy", "lora", "reference"};
  const auto place = std::find(modes.begin(), modes.end(), mode);
  if (place == modes.end()) named.fault(fmt::format("mode is '{}', {}", mode.substr(0, 60), allowed_are(mode, modes)));
  shape.mode = static_cast<ShapeMode>(place - modes.begin());
  shape.context = named.integer("context", 1);
  shape.accelerators = named.integer("accelerators", 1);
  if (!accelerator_name.empty()) shape.accelerator = catalog.accelerator(accelerator_name).id;
  if (shape.accelerator.empty() != (shape.accelerators == 0)) named.fault("accelerator and accelerators go together");
  if (shape.accelerators > 65536) named.fault(fmt::format("accelerators is {}, allowed are 1 to 65536", shape.accelerators));
  if (!experts.empty() && experts != "int4" && experts != "bf16") named.fault(fmt::format("experts is '{}', allowed are bf16 and int4", experts.substr(0, 60)));
  shape.int4_experts = experts == "int4";
  if (shape.int4_experts && shape.mode == ShapeMode::policy) named.fault("experts is int4, and mode policy trains them: allowed is bf16");
  shape.source = named.text("source");
  const bool reference = named.flag("reference");
  if (reference && shape.mode != ShapeMode::policy) named.fault("reference is for mode policy alone");
  if (named.has("layout")) {
    shape.layout = read_layout(named.node("layout"), named.where());
    const ModelSizes* sizes = shape.accelerators > 0 ? catalog.model(shape.model).sizes() : nullptr;
    const std::string wrong = sizes ? layout_fault(*sizes, shape.accelerators, *shape.layout) : "";
    if (!wrong.empty()) named.fault(named.node("layout"), "layout: " + wrong);
  }
  named.done();
  std::vector<TrainingShape> rows = {shape};
  if (reference) {
    rows.push_back(shape);
    rows.back().id += "-reference";
    rows.back().mode = ShapeMode::reference;
  }
  return rows;
}
}  // namespace

void ShapeCatalog::add_parsed(std::string_view toml, const std::string& label) {
  toml::table root;
  try {
    root = toml::parse(toml);
  } catch (const toml::parse_error& e) {
    fail(ErrorCode::invalid_argument, "{}:{}:{}: {}", label, e.source().begin.line, e.source().begin.column, e.description());
  }
  with_context(fmt::format("reading {}", label), [&] {
    FileTable file(root, "the file");
    if (file.has("accelerator")) {
      FileTable all(file.node("accelerator"), "accelerator");
      for (const auto& [key, node] : *file.node("accelerator").as_table()) {
        const std::string id(key.str());
        FileTable table(node, "accelerator." + id);
        if (std::any_of(accelerators_.begin(), accelerators_.end(), [&](const Accelerator& a) { return a.id == id; }))
          fail(ErrorCode::already_exists, "{} is in the catalog already", table.where());
        accelerators_.push_back({id, table.integer("memory_gb", 1) * 1'000'000'000});
        table.done();
      }
    }
    if (file.has("model")) {
      FileTable all(file.node("model"), "model");
      for (const auto& [key, node] : *file.node("model").as_table()) {
        ShapeModel model = read_model(std::string(key.str()), node);
        if (find_model(model.id)) fail(ErrorCode::already_exists, "model.{} is in the catalog already", model.id);
        models_.push_back(std::move(model));
      }
    }
    if (file.has("shape")) {
      const toml::array* rows = file.node("shape").as_array();
      if (!rows) file.fault(file.node("shape"), "shape is no list: each begins with [[shape]]");
      for (const toml::node& node : *rows)
        for (TrainingShape& row : read_shape(*this, node)) {
          if (std::any_of(shapes_.begin(), shapes_.end(), [&](const TrainingShape& s) { return s.id == row.id; }))
            fail(ErrorCode::already_exists, "the shape {} is in the catalog already", row.id);
          shapes_.push_back(std::move(row));
        }
    }
    file.done();
    if (shapes_.size() > kMostRows || models_.size() > kMostRows || accelerators_.size() > kMostRows)
      fail(ErrorCode::resource_exhausted, "there are more than {} rows", kMostRows);
  });
}

}  // namespace lockstep

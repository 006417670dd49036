#include "runs/metrics_columns.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {
constexpr std::array<std::string_view, 3> kNoNumbers = {"NaN", "Infinity", "-Infinity"};

// SAX: builds no tree, and depth is only counted.
struct Numbers : nlohmann::json_sax<nlohmann::json> {
  const std::function<void(std::string_view, double)>& use;
  std::string name;
  int depth = 0;
  bool step = false, object = false;
  explicit Numbers(const std::function<void(std::string_view, double)>& f) : use(f) {}

  bool number(double value) {
    if (depth == 1 && object) use(name, value);
    return true;
  }
  bool integer(double value) {
    step = step || (depth == 1 && name == "step");
    return number(value);
  }
  bool null() override { return number(std::numeric_limits<double>::quiet_NaN()); }
  bool boolean(bool value) override { return number(value ? 1 : 0); }
  bool number_integer(number_integer_t value) override { return integer(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override { return integer(static_cast<double>(value)); }
  bool number_float(number_float_t value, const string_t&) override { return number(value); }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override {
    object = object || depth == 0;
    return ++depth < 64;
  }
  bool key(string_t& value) override {
    if (depth == 1) name = value;
    return true;
  }
  bool end_object() override { return --depth, true; }
  bool start_array(std::size_t) override { return ++depth < 64; }
  bool end_array() override { return --depth, true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }
};

// Python writes NaN, Infinity and -Infinity, which are no JSON: they become null, a gap. "" for a line without them.
std::string without_words_for_no_number(std::string_view line) {
  if (line.find("NaN") == std::string_view::npos && line.find("Infinity") == std::string_view::npos) return {};
  std::string text;
  bool quoted = false;
  for (std::size_t at = 0; at < line.size();) {
    if (!quoted) {
      const std::string_view rest = line.substr(at);
      const auto word = std::find_if(kNoNumbers.begin(), kNoNumbers.end(), [&](std::string_view w) { return rest.starts_with(w); });
      if (word != kNoNumbers.end()) {
        text += "null";
        at += word->size();
        continue;
      }
    }
    if (line[at] == '"') quoted = !quoted;
    if (quoted && line[at] == '\\' && at + 1 < line.size()) text += line[at++];
    text += line[at++];
  }
  return text;
}
}  // namespace

bool read_numbers(std::string_view line, const std::function<void(std::string_view, double)>& use) {
  Numbers numbers(use);
  const std::string nulls = without_words_for_no_number(line);
  const std::string_view text = nulls.empty() ? line : nulls;
  return nlohmann::json::sax_parse(text.begin(), text.end(), &numbers) && numbers.object && numbers.step;
}

void MetricsColumns::add(std::string_view line, std::int64_t part) {
  scratch_.clear();
  double step = 0;
  const bool good = read_numbers(line, [&](std::string_view key, double value) {
    if (key == "step") step = value;
    else if (key.size() <= 100 && scratch_.size() < most_columns_) scratch_.emplace_back(key, value);
  });
  ++lines_;
  if (!good) {
    ++bad_lines_;
    return;
  }
  for (const auto& [key, value] : scratch_) {
    auto found = index_.find(key);
    if (found == index_.end()) {
      if (columns_.size() == most_columns_) continue;
      found = index_.emplace(key, columns_.size()).first;
      columns_.emplace_back().key = key;
    }
    Column& column = columns_[found->second];
    const Point point{step, value};
    if (part < 0) {
      column.points.push_back(point);
      continue;
    }
    if (column.part != part) close(column);
    column.part = part;
    if (std::isnan(value)) {  // a gap within a part is not seen at this distance; a part without a number is one
      column.gap = step;
      continue;
    }
    if (!column.open || value < column.smallest.value) column.smallest = point;
    if (!column.open || value > column.largest.value) column.largest = point;
    column.open = true;
  }
}

void MetricsColumns::close(Column& column) {
  if (!column.open) {
    if (column.gap) column.points.push_back({*column.gap, std::numeric_limits<double>::quiet_NaN()});
    column.gap.reset();
    return;
  }
  column.open = false;
  column.gap.reset();
  const bool ascending = column.smallest.step <= column.largest.step;
  column.points.push_back(ascending ? column.smallest : column.largest);
  if (column.smallest.step != column.largest.step) column.points.push_back(ascending ? column.largest : column.smallest);
}

Json MetricsColumns::take() {
  Json json = Json::object();
  for (Column& column : columns_) {
    close(column);
    Json x = Json::array(), y = Json::array();
    for (const Point& point : column.points) {
      x.push_back(point.step);
      y.push_back(std::isfinite(point.value) ? Json(point.value) : Json(nullptr));
    }
    json[column.key] = {{"x", std::move(x)}, {"y", std::move(y)}};
  }
  columns_.clear();
  index_.clear();
  return json;
}

}  // namespace lockstep

// Reads lines of metrics.jsonl into columns: steps and values of every numeric key. A long column is thinned to the smallest and largest value of
// each part, so that no spike is lost. Lines that are no JSON object with an integer "step" are counted. Knows no file. One thread.
//   MetricsColumns columns(200); columns.add(line, -1); Json json = columns.take();
#pragma once
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "model/config_reader.h"

namespace lockstep {

// The numbers of one line, true and false as 1 and 0; null, and the NaN and Infinity that Python writes, as NaN. False when it is no object with an
// integer "step" (then some may have been shown).
bool read_numbers(std::string_view line, const std::function<void(std::string_view key, double value)>& use);

class MetricsColumns {
 public:
  explicit MetricsColumns(std::size_t most_columns) : most_columns_(most_columns) {}
  // part -1: the line's values are kept as they are; else two a part and key. Parts ascend.
  void add(std::string_view line, std::int64_t part);
  std::int64_t lines() const { return lines_; }
  std::int64_t bad_lines() const { return bad_lines_; }
  // {key: {"x": [...], "y": [...]}}, in the order in which keys came; the object is empty afterwards.
  Json take();

 private:
  struct Point {
    double step = 0, value = 0;
  };
  struct Column {
    std::string key;
    std::vector<Point> points;
    std::int64_t part = -1;
    bool open = false;
    std::optional<double> gap;  // the step of the part's last line without a number
    Point smallest, largest;
  };
  void close(Column& column);
  std::size_t most_columns_;
  std::vector<Column> columns_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::vector<std::pair<std::string, double>> scratch_;
  std::int64_t lines_ = 0, bad_lines_ = 0;
};

}  // namespace lockstep

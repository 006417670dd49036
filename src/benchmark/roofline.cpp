#include "benchmark/roofline.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/file.h"

namespace lockstep {

double RooflinePoint::seconds(double flop, double bytes) const {
  const double arithmetic = gigaflops > 0 ? flop / gigaflops / 1e9 : 0, memory = gigabytes_per_second > 0 ? bytes / gigabytes_per_second / 1e9 : 0;
  return std::max(arithmetic, memory);
}

const RooflinePoint& Roofline::at(std::int64_t threads) const {
  std::vector<std::int64_t> measured;
  for (const RooflinePoint& point : points) {
    if (point.threads == threads) return point;
    measured.push_back(point.threads);
  }
  fail(ErrorCode::not_found, "the roofline was measured with {} threads, not with {}; `lockstep bench roofline --threads {}` measures that",
       fmt::join(measured, ", "), threads, threads);
}

nlohmann::ordered_json roofline_json(const Roofline& roofline) {
  nlohmann::ordered_json points = nlohmann::ordered_json::array();
  for (const RooflinePoint& point : roofline.points)
    points.push_back(nlohmann::ordered_json{{"threads", point.threads}, {"gigaflops", point.gigaflops}, {"gigabytes_per_second", point.gigabytes_per_second}});
  return {{"kind", "roofline"}, {"processor", roofline.processor}, {"isa", roofline.isa}, {"points", points}};
}

Roofline read_roofline(const std::filesystem::path& path) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 20;
  const auto wrong = [&](const char* what) { fail(ErrorCode::corrupt_file, "'{}' is no roofline of `lockstep bench roofline`: {}", path.string(), what); };
  const nlohmann::ordered_json json = read_json_or_null(read_file(path, kMostBytes));
  const auto text = [&](const char* name) {
    const bool there = json.is_object() && json.contains(name) && json[name].is_string();
    return there ? json[name].get<std::string>() : std::string();
  };
  if (text("kind") != "roofline") wrong("it is no JSON object of the kind roofline");
  Roofline roofline{text("processor"), text("isa"), {}};
  if (!json.contains("points") || !json["points"].is_array() || json["points"].empty()) wrong("it has no points");
  for (const nlohmann::ordered_json& point : json["points"]) {
    const auto number = [&](const char* name) {
      if (!point.is_object() || !point.contains(name) || !point[name].is_number() || point[name].get<double>() < 0)
        wrong("a point has threads, gigaflops and gigabytes_per_second, numbers of 0 or more");
      return point[name].get<double>();
    };
    const double threads = number("threads");
    if (threads < 1 || threads > 4096) wrong("threads are 1 to 4096");
    roofline.points.push_back({static_cast<std::int64_t>(threads), number("gigaflops"), number("gigabytes_per_second")});
  }
  return roofline;
}

}  // namespace lockstep

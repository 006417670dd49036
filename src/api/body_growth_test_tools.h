// How a route's work grows with the length of its body, wherever that grows: each list and text of a right body is made longer. Tests only.
//   expect_work_grows_with_the_length(route, right, [&](const Json& body, const auto& grow) { std::string text = body.dump(); grow(text); ask(route, text); });
#pragma once
#include <gtest/gtest.h>

#include "api/json_fields.h"
#include "base/growth_test_tools.h"

namespace lockstep {

// Paths of all values in a body.
inline void paths_of(const Json& json, const Json::json_pointer& at, std::vector<Json::json_pointer>& all) {
  for (const auto& [key, value] : json.items()) {
    const Json::json_pointer next = json.is_array() ? at / static_cast<std::size_t>(std::stoul(key)) : at / key;
    all.push_back(next);
    if (value.is_structured()) paths_of(value, next, all);
  }
}

// A body with a mark where it grows.
struct GrowingBody {
  Json body;
  std::string mark;       // as the body's text has it
  std::string one;        // stands in its place as often as it takes
  std::string separator;  // between them

  std::string more(std::size_t bytes) const {
    std::string text;
    for (std::size_t number = 0; number == 0 || text.size() < bytes; ++number) text += (number > 0 ? separator : "") + one;
    return text;
  }
};

// A list grows by its last element, a text by letters.
inline GrowingBody growing_body(const Json& right, const Json::json_pointer& path) {
  const std::string mark = "grown here";
  GrowingBody grows{right, '"' + mark + '"', {}, ","};
  Json& value = grows.body[path];
  if (value.is_array()) {
    grows.one = value.empty() ? "1" : value.back().dump();
    value.push_back(mark);
  } else {
    grows.mark = mark;
    grows.one = "a";
    grows.separator = "";
    value = value.get<std::string>() + mark;
  }
  return grows;
}

// `ask` sends a body and waits for its answer; it has `grow` change the body's text before. Sizes below and above what most fields may have.
template <class Ask>
void expect_work_grows_with_the_length(const std::string& route, const Json& right, const Ask& ask) {
  std::vector<Json::json_pointer> paths{Json::json_pointer()};
  paths_of(right, Json::json_pointer(), paths);
  for (const Json::json_pointer& path : paths) {
    // Keys of one object are compared with each other, up to a limit: base/bounded_json_test.cpp.
    if (!right.at(path).is_array() && !right.at(path).is_string()) continue;
    const GrowingBody grows = growing_body(right, path);
    for (const std::size_t bytes : {std::size_t{1'500}, std::size_t{8'000}}) {
      const auto run = [&](const std::string& more) {
        ask(grows.body, [&](std::string& text) {
          const std::size_t at = text.find(grows.mark);
          ASSERT_NE(at, std::string::npos) << route << " " << path.to_string();
          text.replace(at, grows.mark.size(), more);
        });
      };
      EXPECT_LT(growth([&](std::size_t size) { return grows.more(size); }, run, bytes, WorkOf::process), kLinearGrowth)
          << route << " " << path.to_string() << ", from " << bytes << " bytes";
    }
  }
}

}  // namespace lockstep

// How long a route works for a long body, wherever that is long: each list and text of a right body grows to a hundred kilobytes. Work that walks for each
// piece over all before it takes seconds there; reading takes hundredths. Tests only.
//   expect_soon_answered("create_session", right, [&](const std::string& body) { post("create_session", body); });
#pragma once
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "api/json_fields.h"

namespace lockstep {

inline constexpr std::size_t kLongBody = std::size_t{128} << 10;
inline constexpr double kSoon = 0.5;  // seconds of a processor

// Paths of all values in a body.
inline void paths_of(const Json& json, const Json::json_pointer& at, std::vector<Json::json_pointer>& all) {
  for (const auto& [key, value] : json.items()) {
    const Json::json_pointer next = json.is_array() ? at / static_cast<std::size_t>(std::stoul(key)) : at / key;
    all.push_back(next);
    if (value.is_structured()) paths_of(value, next, all);
  }
}

// The body's text, where the value at the path is `one` again and again: letters of a text, or elements of a list.
inline std::string long_body(const Json& right, const Json::json_pointer& path, const std::string& one) {
  const std::string mark = "grown here";
  Json body = right;
  const bool is_text = body[path].is_string();
  body[path] = mark;
  std::string more;
  while (more.size() < kLongBody) more += (is_text || more.empty() ? "" : ",") + one;
  std::string text = body.dump();
  const std::string marked = '"' + mark + '"';
  text.replace(text.find(marked), marked.size(), is_text ? '"' + more + '"' : '[' + more + ']');
  return text;
}

// Of all threads.
inline double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// `ask` sends a body and waits for its answer. The least of some tries: others of this process may work beside it.
template <class Ask>
double seconds_of_answer(const std::string& body, const Ask& ask) {
  double least = 0;
  for (int i = 0; i == 0 || (i < 3 && least > kSoon); ++i) {
    const double before = processor_seconds();
    ask(body);
    const double took = processor_seconds() - before;
    least = i == 0 ? took : std::min(least, took);
  }
  return least;
}

template <class Ask>
void expect_soon_answered(const std::string& route, const Json& right, const Ask& ask) {
  std::vector<Json::json_pointer> paths;
  paths_of(right, Json::json_pointer(), paths);
  for (const Json::json_pointer& path : paths) {
    const Json& value = right.at(path);
    std::vector<std::string> pieces;
    if (value.is_string()) pieces = {"a"};
    if (value.is_array()) pieces = {"1", "{}", value.empty() ? std::string("[]") : value.back().dump()};
    for (const std::string& one : pieces)
      EXPECT_LT(seconds_of_answer(long_body(right, path, one), ask), kSoon) << route << " " << path.to_string() << " of " << one.substr(0, 80);
  }
}

}  // namespace lockstep

// Sends a load of requests to a server of OpenAI's API and measures what clients see. A class of requests arrives at random at a rate (Poisson, whether
// or not earlier ones are answered), or keeps a number of requests open, each begun when one ends, or both. Each request is a stream of
// /v1/completions; the class gives its figures their name and its requests their service_tier.
//   const std::vector<ClassFigures> found = run_serve_load({.address = parse_http_address(url, "url"), .model = "m", .classes = {{.name = "live", .rate = 2}}});
// Arrivals and prompts are drawn from the seed alone. Called by one thread; it starts one for each open request.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/stop_token.h"
#include "http/client.h"

namespace lockstep {

struct LoadClass {
  std::string name, service_tier;  // service_tier: empty: none is said
  double rate = 0;                 // requests a second that come by chance
  std::int64_t at_once = 0;        // and those that follow one another
  std::int64_t tokens = 64;        // of each answer
};

struct ServeLoad {
  static constexpr std::int64_t kMostOpen = 2048;
  HttpAddress address = {};
  std::string key = {}, model = {};
  std::vector<LoadClass> classes = {};
  std::int64_t prompt_words = 12;
  double warm_seconds = 5, seconds = 30;  // what happens in the first ones counts nowhere
  std::uint64_t seed = 7;
  StopToken stop = {};
};

// Of what happened in the measured seconds.
struct ClassFigures {
  std::string name;
  std::int64_t answers = 0, tokens = 0;  // answers: whose first token came then; tokens: that came then
  double tokens_per_second = 0;
  std::vector<double> first_seconds, gap_seconds, answer_seconds;  // sorted. first and answer: since a request's time had come, even where it could not be sent
  std::map<int, std::int64_t> refused = {};                        // by status; 0: broken off, or never sent, since kMostOpen were open
  std::string refusal = {};                                        // what the first of them was told
};

// Errors: cancelled; io and what the server says, where not one answer came.
std::vector<ClassFigures> run_serve_load(const ServeLoad& load);

// The least value that so many percent of the sorted ones do not exceed; 0 of none.
double percentile(const std::vector<double>& sorted, double percent);

}  // namespace lockstep

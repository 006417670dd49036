// Sends a load of requests to a server of OpenAI's API and measures what clients see. A class of requests arrives at random at a rate (Poisson, whether
// or not earlier ones are answered), or keeps a number of requests open, each begun when one ends, or both. Each request is a stream of
// /v1/completions; the class gives its figures their name and its requests their service_tier.
//   const HttpAddress address = parse_http_address(url, "url");
//   const std::vector<ClassFigures> found = run_serve_load({.address = address, .model = "m", .classes = {{.name = "live", .rate = 2}}});
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
  std::string name, service_tier;  // service_tier: empty: requests have none
  double rate = 0;                 // requests per second that arrive at random
  std::int64_t at_once = 0;        // requests that are always open beside those, each begun when one ends
  std::int64_t tokens = 64;        // of each answer
};

struct ServeLoad {
  static constexpr std::int64_t kMostOpen = 2048;
  HttpAddress address = {};
  std::string key = {}, model = {};
  std::vector<LoadClass> classes = {};
  std::int64_t prompt_words = 12;
  double warm_seconds = 5, seconds = 30;  // the first warm_seconds are not measured
  std::uint64_t seed = 7;
  StopToken stop = {};
};

// Figures of the measured seconds.
struct ClassFigures {
  std::string name;
  std::int64_t answers = 0, tokens = 0;  // answers whose first token came then; tokens that came then
  double tokens_per_second = 0;
  std::vector<double> first_seconds, gap_seconds, answer_seconds;  // sorted; first and answer count from the time when a request was due
  std::map<int, std::int64_t> refused = {};                        // by HTTP status; 0: cut off, or not sent because kMostOpen were open
  std::string refusal = {};                                        // the message of the first refusal
};

// Errors: cancelled; io with the server's message if there was no answer at all.
std::vector<ClassFigures> run_serve_load(const ServeLoad& load);

// The least of the sorted values that `percent` % of them do not exceed; 0 if there are none.
double percentile(const std::vector<double>& sorted, double percent);

}  // namespace lockstep

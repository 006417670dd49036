// How fast ranks exchange: the time of a small message and the rate of large ones over each link of two ranks, and the rate when all send at once. Each
// link's messages are compared byte by byte with what was sent. Measured is Communicator::exchange with its copies, as a step has it, not the wire alone.
//   const LinkSpeeds speeds = measure_links(ranks, {.seconds = 0.05}); speeds.links.front().latency
// Every process makes the call with the same settings, and all get the same figures. One caller at a time.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/ranks.h"

namespace lockstep {

struct LinkSpeed {
  int first = 0, second = 0;                     // ranks
  double latency = 0;                            // seconds that 8 bytes take one way: half of the way there and back; the median
  double there = 0, back = 0;                    // bytes a second from first to second, and from second to first; medians
  std::int64_t there_bytes = 0, back_bytes = 0;  // of the messages
};

struct LinkSpeeds {
  std::vector<LinkSpeed> links;
  double around = 0;  // bytes a second that each rank sends to the next one, while all do: the slowest rank's median
};

struct LinkSettings {
  double seconds = 0.05;  // of each measurement, about; a link has three
  std::int64_t most_bytes = std::int64_t{4} << 20;
  std::chrono::milliseconds patience{60'000};      // that a message between processes may take; 0: for ever
  std::function<std::string(int rank)> name = {};  // for errors; none: "rank 1"
  // In process 0, after each link.
  std::function<void(const LinkSpeed& link, std::size_t done, std::size_t all)> on_link = {};
};

// The links that are measured, in order: of up to kMostPaired ranks every pair, of more each rank and the next one, around.
inline constexpr int kMostPaired = 16;
std::vector<std::pair<int, int>> measured_links(int ranks);

// Errors: invalid_argument for one rank; io for a message that arrives with other bytes, or not within `patience`, with both ranks' names.
LinkSpeeds measure_links(Ranks& ranks, const LinkSettings& settings);

}  // namespace lockstep

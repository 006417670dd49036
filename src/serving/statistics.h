// Counters of a generation service since it was made, and the state of its engine now, for metrics. Knows no wire format. ServiceStatistics: any
// thread. ServiceSnapshot: plain values.
//   statistics.queue_seconds.observe(0.012); ++statistics.of(WorkClass::live).requests;
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/fair_shares.h"
#include "engine/options.h"
#include "observe/prometheus.h"

namespace lockstep {

// Of the sequences of a class of work (base/fair_shares.h).
struct ClassStatistics {
  std::atomic<std::uint64_t> requests{0}, tokens{0};  // submitted; generated, of ended requests
  // For requests with on_token: from the call to the first token, and from each to the next.
  Histogram first_token_seconds{Histogram::second_bounds()}, token_gap_seconds{Histogram::second_bounds()};
};

struct ServiceStatistics {
  std::atomic<std::uint64_t> prompt_tokens{0}, generated_tokens{0};
  std::atomic<std::uint64_t> requests{0}, refused{0};                         // submitted; refused because the service was full
  std::atomic<std::uint64_t> stopped{0}, length{0}, cancelled{0}, failed{0};  // how they ended
  // Answers that were held (serving/hold.h): how often, how often rolled back, and tokens put in; and that are held now.
  std::atomic<std::uint64_t> holds{0}, roll_backs{0}, put_in_tokens{0};
  std::atomic<std::int64_t> held{0};
  Histogram queue_seconds{Histogram::second_bounds()};        // from the call to the first forward with its rows
  Histogram first_token_seconds{Histogram::second_bounds()};  // from the call to the first token
  Histogram seconds{Histogram::second_bounds()};              // to the end
  std::array<ClassStatistics, kWorkClasses> by_class;
  ClassStatistics& of(WorkClass work) { return by_class[static_cast<std::size_t>(work)]; }
};

struct WaitingSequences {
  WorkClass work = WorkClass::live;
  std::string key;  // as metrics have it
  std::int64_t count = 0;
};

struct ServiceSnapshot {
  EngineCounters counters;
  std::int64_t running = 0, waiting = 0;   // sequences in the batch; behind it
  std::int64_t pages = 0, free_pages = 0;  // of the key-value cache; what is not free belongs to sequences or to prefixes
  std::int64_t cache_bytes = 0, weight_bytes = 0, workspace_bytes = 0;
  std::vector<WaitingSequences> waiting_by_key;  // of sequences that wait for places or pages
};

}  // namespace lockstep

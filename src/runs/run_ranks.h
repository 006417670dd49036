// What the ranks of a run did in its newest step, and how often it was started, with which layouts, for the live page: from the last line of its
// metrics.jsonl and from launch.jsonl, which `lockstep launch` writes (docs/cluster.md).
//   const Json told = run_ranks("runs/a"); told["starts"].size()
// Files are untrusted, and grow meanwhile: what cannot be read is left out. Any thread.
#pragma once
#include <filesystem>

#include "checkpoint/json_file.h"

namespace lockstep {

// {"step", "ranks": [{"rank", "process", "host", "computed_seconds", "waited_seconds", "sent_seconds", "sent_bytes"}], "starts": [{"start", "time", "ranks" (a
// layout), "processes", "hosts": [{"name", "slots"}], "step", "seconds" (to its first step), "loss": {"words", "host", "process", "step", "saved_step"},
// "taken_back": [hosts], "end"}]}; step null and lists empty where there are none, and of a start null what has not happened.
Json run_ranks(const std::filesystem::path& run);

}  // namespace lockstep

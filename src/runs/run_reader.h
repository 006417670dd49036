// Reads run folders for the live page while they grow: the list of runs, their metrics from an offset on (thinned when
// there are many), their transcripts, results of parity and the demo.
//   RunReader reader({.roots = {"runs"}}); Json numbers = reader.metrics("countdown-rl", "", {.from = 0});
// Folders are untrusted: files may be huge, truncated, missing, or no files; every answer is bounded, and what cannot be read is left out. A run is
// named as the listing names it, and no name becomes a path. Knows no transport. Any thread; each call reads the disk anew.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/json_file.h"

namespace lockstep {

struct RunPlaces {
  std::vector<std::filesystem::path> roots;     // folders whose folders are runs
  std::vector<std::filesystem::path> runs;      // runs themselves
  std::optional<std::filesystem::path> parity;  // what `lockstep parity --json` printed, for all of them
  std::string live;                             // the name of the run that this process works on
};

struct MetricsFrom {
  std::int64_t from = 0;       // a byte offset: "next" of the answer before
  std::string file;            // "file" of the answer before; another one (a resumed run) begins anew
  std::int64_t points = 2000;  // of a column at most; more lines keep each part's smallest and largest value
};

class RunReader {
 public:
  static constexpr std::size_t kMostRuns = 500, kMostColumns = 200, kMostTranscripts = 64;
  static constexpr std::int64_t kMostPoints = 20000;
  static constexpr std::int64_t kMostBytes = 64 << 20;  // read for one answer; of more, evenly spaced parts are read

  explicit RunReader(RunPlaces places) : places_(std::move(places)) {}

  // {"runs": [{"name", "arms": [{"name", "bytes", "transcripts"}], "updated" (unix seconds), "live", "steps", "last": {...}}]},
  // the newest first. An arm is a file metrics-ARM.jsonl; metrics.jsonl is the arm "".
  Json list() const;
  // {"name", "config", "result" (the demo's), "parity"}; null what is not there. Error not_found.
  Json about(const std::string& run) const;
  // What its ranks did in the newest step, and its starts (runs/run_ranks.h). Error not_found.
  Json ranks(const std::string& run) const;
  // {"file", "from", "next", "lines", "bad_lines", "thinned", "columns": {key: {"x": [steps], "y": [numbers or null]}}}.
  // Only whole lines count; "next" is behind the last. Errors: not_found, invalid_argument.
  Json metrics(const std::string& run, const std::string& arm, const MetricsFrom& from) const;
  // {"steps": [...]} that have transcripts, ascending. Error not_found.
  Json transcript_steps(const std::string& run, const std::string& arm) const;
  // {"step", "entries": [...]}, as they were written (rl/transcript.h). Error not_found.
  Json transcripts(const std::string& run, const std::string& arm, std::int64_t step) const;

 private:
  struct Run {
    std::string name;
    std::filesystem::path path;
    std::vector<std::string> arms;
    double updated = 0;
  };
  std::vector<Run> runs() const;
  Run find(const std::string& name) const;
  std::filesystem::path arm_file(const Run& run, const char* stem, const std::string& arm) const;
  RunPlaces places_;
};

}  // namespace lockstep

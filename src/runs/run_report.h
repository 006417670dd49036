// Writes one self-contained HTML file of a run: the live page's bundle with the run's data as JSON that is not executed.
//   write_run_report("runs/countdown-rl", "runs/countdown-rl/report.html");
// It opens from a disk, without a network; its policy allows the one script whose hash it names. Bounded: curves are thinned,
// transcripts are those of evenly spaced steps. Knows no server. One thread.
#pragma once
#include <filesystem>
#include <string>

#include "runs/run_reader.h"

namespace lockstep {

inline constexpr std::size_t kMostReportBytes = 12 << 20;  // of data; transcripts are left out from there on

// Errors: not_found when the folder is no run.
std::string run_report(const std::filesystem::path& run);
// The same to a file, whole or not at all. Errors: io too.
void write_run_report(const std::filesystem::path& run, const std::filesystem::path& file);

}  // namespace lockstep

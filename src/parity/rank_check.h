// `lockstep doctor --ranks`: do the hosts of a run compute the same bits, and how fast do its ranks reach each other? Compares what each process's
// instruction set computes, operation by operation, measures the links between ranks, and says what it found and what to do.
//   const RankCheck check = check_ranks(ranks, {.threads = 2}); for (const Finding& finding : check.findings) ...
// Every process makes the call, and all get the same answer. One caller at a time.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "parallel/link_speed.h"
#include "parity/doctor.h"
#include "parity/folder_digests.h"
#include "parity/rank_bits.h"

namespace lockstep {

// Of the process that a rank is in.
struct RankFacts {
  int rank = 0, process = 0;
  std::string host;
  std::int64_t pid = 0, threads = 0;
  std::string instruction_set, program;   // the commit it was built of
  std::vector<OperationDigest> profiles;  // their names and digests
  std::vector<OperationDigest> bits;
  std::vector<FileDigest> files;  // of RankCheckSettings::model
  std::string name() const;       // "rank 1 (process 1, host b)"
};

struct RankCheckSettings {
  InstructionSet isa = widest_instruction_set();  // that this process computes with
  int threads = 1;
  std::string program;
  std::string model;  // a folder or a GGUF file that all processes have under this path; empty: none is compared
  bool links = true;  // are measured
  LinkSettings measure = {};
  std::function<void(const std::string&)> say = {};  // sentences of progress, in process 0
  // What a process computes; tests have others.
  std::function<std::vector<OperationDigest>(InstructionSet, int threads)> compute = operation_digests;
};

struct RankCheck {
  std::vector<RankFacts> ranks;  // by rank
  LinkSpeeds links;              // empty: not measured
  std::vector<Finding> findings;
  bool fit() const;  // no problem was found
};

// Errors: those of measure_links and operation_digests, with the process where one came.
RankCheck check_ranks(Ranks& ranks, const RankCheckSettings& settings);

// "3.2 us", "1.25 GB/s".
std::string seconds_text(double seconds);
std::string rate_text(double bytes_per_second);
// What is to be said of such facts and figures; `model` as in the settings.
std::vector<Finding> judge_ranks(const RankLayout& layout, const std::vector<RankFacts>& ranks, const LinkSpeeds& links, const std::string& model = "");

}  // namespace lockstep

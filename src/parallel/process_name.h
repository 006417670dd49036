// A process of a run as errors call it: "process 1 (host b, pid 7)". Who watches processes writes it, who starts them again reads it in their errors.
//   const std::optional<ProcessName> who = find_process_name("process 1 (host b, pid 7) ended without a word");
// Plain values.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

struct ProcessName {
  int process = 0;
  std::string host;
  long pid = 0;
  std::string text() const;
};

// The first one in a sentence; empty: it names none.
std::optional<ProcessName> find_process_name(std::string_view sentence);

}  // namespace lockstep

// Findings of `lockstep doctor` as lines and as JSON.
//   print_findings(findings); print_as_line({{"findings", findings_json(findings)}});
#pragma once
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "parity/doctor.h"

namespace lockstep {

inline nlohmann::ordered_json findings_json(const std::vector<Finding>& findings) {
  nlohmann::ordered_json found = nlohmann::ordered_json::array();
  for (const Finding& f : findings) found.push_back({{"level", finding_level_name(f.level)}, {"subject", f.subject}, {"text", f.text}, {"mend", f.mend}});
  return found;
}

inline void print_findings(const std::vector<Finding>& findings) {
  for (const Finding& f : findings) {
    std::printf("%-8s %-10s %s\n", finding_level_name(f.level).c_str(), f.subject.c_str(), f.text.c_str());
    if (!f.mend.empty()) std::printf("%-8s %-10s -> %s\n", "", "", f.mend.c_str());
  }
}

// In one line; bytes that are no UTF-8 become U+FFFD.
inline void print_as_line(const nlohmann::ordered_json& json) {
  std::printf("%s\n", json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
}

}  // namespace lockstep

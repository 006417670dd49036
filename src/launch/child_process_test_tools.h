// Shared by tests of programs that are started. Tests only.
//   ChildProcess child({"sh", "-c", "echo a >&2"}); EXPECT_EQ(all_lines(child), std::vector<std::string>{"a"});
#pragma once
#include "launch/child_process.h"

namespace lockstep {

// Everything that it writes, until it has ended.
inline std::vector<std::string> all_lines(ChildProcess& child) {
  std::vector<std::string> all;
  for (bool over = false; !over;) {
    over = child.ended().has_value();
    for (const std::string& line : child.lines(50)) all.push_back(line);
  }
  return all;
}

}  // namespace lockstep

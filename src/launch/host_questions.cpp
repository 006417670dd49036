#include "launch/host_questions.h"

#include <algorithm>

namespace lockstep {

void HostQuestions::ask(int host, const std::string& name, double now) {
  if (std::any_of(asked_.begin(), asked_.end(), [&](const Asked& one) { return one.host == host; })) return;
  const std::vector<std::string> line = asking_line(program_, name);
  asked_.push_back({host, now + patience_, line.empty() ? nullptr : std::make_unique<ChildProcess>(line)});
}

std::vector<std::pair<int, bool>> HostQuestions::answers(double now) {
  std::vector<std::pair<int, bool>> found;
  std::erase_if(asked_, [&](Asked& one) {
    if (one.command) one.command->lines();  // what it says is nobody's, and must not block it
    const std::optional<int> status = one.command ? one.command->ended() : 0;
    if (!status && now < one.until) return false;
    found.emplace_back(one.host, status == 0);
    return true;
  });
  return found;
}

}  // namespace lockstep

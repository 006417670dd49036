// Which settings a resumed run may change, one rule for all kinds: more steps are allowed, settings that change no bit are free, and a change of
// the mathematics is refused with both values. Pure functions.
//   check_resumed_settings(run.config(), config.resolved, {.free = {"export_dtype"}});
#pragma once
#include <string>
#include <vector>

#include "model/config_reader.h"

namespace lockstep {

struct ResumeRule {
  std::vector<std::string> free;  // keys that this kind of run may change, beside those that no kind's bits depend on
  bool only_known = false;        // ignores keys that the run's config.json lacks (an earlier version's)
};
// Errors: invalid_argument with the key and both values, and what --fork does.
void check_resumed_settings(const Json& before, const Json& now, const ResumeRule& rule);

}  // namespace lockstep

// Which settings a resumed run may change, one rule for all kinds of runs: more steps are allowed, settings that change no bit are free, and any
// other change is refused with both values. Pure functions.
//   check_resumed_settings(run.config(), config.resolved, {.free = {"export_dtype"}});
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/config_reader.h"

namespace lockstep {

struct ResumeRule {
  std::vector<std::string> free = {};  // keys that this kind of run may change, beside those that change no bit in any kind
  // Keys with default values. If the run's config.json lacks one, the run is older than the option, and the default is what it did, so it is accepted.
  std::vector<std::string> unsaid = {};
  bool only_known = false;  // ignores all keys that the run's config.json lacks (an earlier version's)
};
// The warm-up of a resumed run that wants so many steps of it: the run's own, unless it was `asked` for; more steps of training do not move it, and one
// that was cut to the length of the run stays where that becomes longer.
std::int64_t resumed_warmup(const Json& before, std::int64_t warmup, bool asked);
// Errors: invalid_argument with the key and both values, and what --fork does.
void check_resumed_settings(const Json& before, const Json& now, const ResumeRule& rule);

}  // namespace lockstep

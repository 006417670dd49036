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
// How many steps of warm-up a resumed run has. `before`: the settings in its config.json; `warmup`: what the command's options give. That is what the run
// had before, unless --warmup was `asked` for: so more --steps do not change the schedule of steps already made. A warm-up that had been cut to the run's
// length is not lengthened either way.
std::int64_t resumed_warmup(const Json& before, std::int64_t warmup, bool asked);
// Errors: invalid_argument with the key and both values, and what --fork does.
void check_resumed_settings(const Json& before, const Json& now, const ResumeRule& rule);

}  // namespace lockstep

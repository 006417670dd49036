#include "runs/run_settings.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/log.h"

namespace lockstep {
namespace {
// Settings that change no bit, or only paths.
const std::vector<std::string>& keys_without_bits() {
  static const std::vector<std::string> keys = {"threads",
                                                "ranks",
                                                "transport",
                                                "rank_timeout",
                                                "device",
                                                "backend",
                                                "isa",
                                                "micro_batch",
                                                "checkpoint_activations",
                                                "context",
                                                "optimizer_state",
                                                "checkpoint_every",
                                                "keep_last",
                                                "runs",
                                                "export_dtype",
                                                "rollout_speculation",
                                                "keep_forward",
                                                "keep_forward_megabytes",
                                                "verify_kept",
                                                "share_prompts_from",  // what it chose is share_prompts
                                                "publish",
                                                "publish_transition",
                                                "draft_tokens",
                                                "transcripts",
                                                "transcripts_every",
                                                "transcript_megabytes",
                                                "forked_from",
                                                "format",
                                                "quiet"};
  return keys;
}

bool among(const std::vector<std::string>& keys, const std::string& key) { return std::find(keys.begin(), keys.end(), key) != keys.end(); }

// Under rejection sampling what is said depends on the guesses.
bool bits_of_guesses(const Json& settings, const std::string& key) {
  return (key == "rollout_speculation" || key == "draft_tokens") && settings.value("acceptance", Json()) == "rejection";
}

std::optional<double> number_of(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return {};
  const std::string& text = value.get_ref<const std::string&>();
  double number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && !text.empty() ? std::optional(number) : std::nullopt;
}

bool same_value(const std::string& key, const Json& a, const Json& b) {
  if (key == "share_prompts") return (a == "backward") == (b == "backward");  // off, forward and none have the same bits
  if (a == b) return true;
  const auto x = number_of(a), y = number_of(b);  // 2e-05 and 0.00002 are one
  return x && y && *x == *y;
}
}  // namespace

std::int64_t resumed_warmup(const Json& before, std::int64_t warmup, bool asked) {
  const auto was = static_cast<std::int64_t>(number_of(before.value("warmup", Json())).value_or(0));
  const bool was_cut = before.contains("steps") && same_value("warmup", before.value("warmup", Json()), before.value("steps", Json()));
  return !asked || (was_cut && warmup > was) ? was : warmup;
}

void check_resumed_settings(const Json& before, const Json& now, const ResumeRule& rule) {
  std::vector<std::string> keys;
  for (const Json* settings : {&before, &now})
    for (const auto& [key, unused] : settings->items())
      if (const bool free = among(keys_without_bits(), key) && !bits_of_guesses(before, key) && !bits_of_guesses(now, key);
          !free && !among(keys, key) && !among(rule.free, key))
        keys.push_back(key);
  for (const std::string& key : keys) {
    if (!before.contains(key) && (rule.only_known || among(rule.unsaid, key))) continue;
    const Json a = before.value(key, Json()), b = now.value(key, Json());
    if (same_value(key, a, b)) continue;
    if (key == "steps") {
      const auto was = number_of(a), is = number_of(b);
      if (was && is && *is > *was) {
        const bool falls = now.value("schedule", Json("constant")) != "constant";
        log_warning(falls ? "the run goes on for more steps; its learning rate falls more slowly from here on than in the steps that were taken"
                          : "the run goes on for more steps",
                    {{"was", a.dump()}, {"is", b.dump()}});
        continue;
      }
      fail(ErrorCode::invalid_argument, "steps is {}, the run was begun with {}; a run may go on for more steps, not for fewer", b.dump(), a.dump());
    }
    fail(ErrorCode::invalid_argument,
         "{} is {}, the run was begun with {}; resume it with the same configuration, or begin another run: --fork NAME instead of --resume begins one with "
         "this one's weights",
         key, b.dump(), a.dump());
  }
}

}  // namespace lockstep

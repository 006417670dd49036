#include "cli/demo_report.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"

namespace lockstep {
namespace {
std::string interval(const Interval& i) { return fmt::format("{:.3f} [{:.3f}, {:.3f}]", i.value, i.low, i.high); }
// 0 is said as 0: it is exact.
std::string small(double x) { return x == 0 ? "0" : fmt::format("{:.3g}", x); }

nlohmann::ordered_json start_and_end(const Interval& start, const Interval& end) {
  return {{"start", start.value}, {"end", end.value}, {"start_interval", {start.low, start.high}}, {"end_interval", {end.low, end.high}}};
}
}  // namespace

std::string demo_table(const std::vector<ArmResult>& results) {
  struct Row {
    std::string label;
    std::vector<std::string> cells;
  };
  std::vector<Row> rows;
  const auto row = [&](const std::string& label, auto&& cell) {
    Row& r = rows.emplace_back(Row{label, {}});
    for (const ArmResult& a : results) r.cells.push_back(cell(a));
  };
  const std::int64_t k = results.front().start.samples;
  row("", [](const ArmResult& a) { return a.arm.name; });
  row("rollouts under", [](const ArmResult& a) { return a.profile; });
  row("KL k1", [](const ArmResult& a) { return small(a.kl.k1()); });
  row("KL k2", [](const ArmResult& a) { return small(a.kl.k2()); });
  row("KL k3", [](const ArmResult& a) { return small(a.kl.k3()); });
  row("log-probabilities", [](const ArmResult& a) { return fmt::format("{}", a.kl.tokens); });
  row("  with other bits", [](const ArmResult& a) { return fmt::format("{}", a.kl.different_bits); });
  row("  clipped", [](const ArmResult& a) { return fmt::format("{}", a.kl.clipped); });
  row("largest log ratio", [](const ArmResult& a) { return small(a.kl.largest); });
  row("reward, first tenth", [](const ArmResult& a) { return fmt::format("{:.3f}", a.reward_first); });
  row("reward, last tenth", [](const ArmResult& a) { return fmt::format("{:.3f}", a.reward_last); });
  row("pass@1 start", [](const ArmResult& a) { return interval(a.start.pass_at_1); });
  row("pass@1 end", [](const ArmResult& a) { return interval(a.end.pass_at_1); });
  row("greedy start", [](const ArmResult& a) { return interval(a.start.greedy); });
  row("greedy end", [](const ArmResult& a) { return interval(a.end.greedy); });
  row(fmt::format("pass@{} start", k), [](const ArmResult& a) { return interval(a.start.pass_at_k); });
  row(fmt::format("pass@{} end", k), [](const ArmResult& a) { return interval(a.end.pass_at_k); });
  row("key pairs skipped", [](const ArmResult& a) { return fmt::format("{:.1f}%", 100 * a.work.skipped_share()); });
  row("seconds", [](const ArmResult& a) { return fmt::format("{:.1f}", a.seconds); });
  row("  sampling", [](const ArmResult& a) { return fmt::format("{:.1f}", a.rollout_seconds); });
  row("  training", [](const ArmResult& a) { return fmt::format("{:.1f}", a.train_seconds); });
  row("  evaluation", [](const ArmResult& a) { return fmt::format("{:.1f}", a.evaluation_seconds); });
  std::string text;
  for (const Row& r : rows) {
    std::string line = fmt::format("{:<22}", r.label);
    for (const std::string& cell : r.cells) line += fmt::format("{:<26}", cell);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::optional<Published> read_published(const std::filesystem::path& model, const std::string& entry) {
  const std::filesystem::path path = model / "published.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  const nlohmann::json json = nlohmann::json::parse(read_file(path, 1 << 20), nullptr, false);
  if (!json.is_object()) fail(ErrorCode::corrupt_file, "'{}' is not a JSON object", path.string());
  if (!json.contains(entry)) return std::nullopt;
  const auto& value = json[entry];
  const auto text = [&](const char* key) {
    if (!value.is_object() || !value.contains(key) || !value[key].is_string())
      fail(ErrorCode::corrupt_file, "'{}': '{}' has no text '{}'", path.string(), entry, key);
    return value[key].template get<std::string>();
  };
  return Published{text("settings"), text("weights_sha256")};
}

std::string demo_settings_text(const DemoSettings& settings) {
  return fmt::format("profile {} {}", profile_by_name(settings.runtime.profile).digest(), describe(settings.rl));
}

nlohmann::ordered_json demo_json(const DemoSettings& settings, const std::vector<ArmResult>& results, const std::optional<Published>& published) {
  nlohmann::ordered_json json;
  json["arms"] = nlohmann::ordered_json::array();
  const std::string pass_at_k = fmt::format("pass_at_{}", settings.evaluation.samples);
  for (const ArmResult& a : results) {
    nlohmann::ordered_json arm{{"name", a.arm.name},
                               {"kl", {{"k1", a.kl.k1()}, {"k2", a.kl.k2()}, {"k3", a.kl.k3()}}},
                               {"clipped", a.kl.clipped_share()},
                               {"different_bits", a.kl.different_bits},
                               {"pass_at_1", start_and_end(a.start.pass_at_1, a.end.pass_at_1)},
                               {"greedy", start_and_end(a.start.greedy, a.end.greedy)},
                               {pass_at_k, start_and_end(a.start.pass_at_k, a.end.pass_at_k)},
                               {"seconds", a.seconds},
                               {"summary", a.arm.summary},
                               {"rollout_profile", a.profile},
                               {"tokens", a.kl.tokens},
                               {"clipped_tokens", a.kl.clipped},
                               {"unequal_steps", a.unequal_steps},
                               {"pairs_skipped_share", a.work.skipped_share()},
                               {"pairs_visible", a.work.pairs_visible},
                               {"pairs_read", a.work.pairs_read},
                               {"expert_rows", a.work.expert_rows},
                               {"reward_first_tenth", a.reward_first},
                               {"reward_last_tenth", a.reward_last},
                               {"rollout_seconds", a.rollout_seconds},
                               {"train_seconds", a.train_seconds},
                               {"evaluation_seconds", a.evaluation_seconds},
                               {"weights_sha256", a.weights_sha256}};
    json["arms"].push_back(std::move(arm));
  }
  json["weights_sha256"] = results.front().weights_sha256;
  json["published_sha256"] = published ? nlohmann::ordered_json(published->weights_sha256) : nlohmann::ordered_json(nullptr);
  json["settings"] = demo_settings_text(settings);
  json["steps"] = settings.rl.steps;
  json["learning_rate"] = settings.rl.learning_rate;
  json["evaluation"] = {{"problems", settings.evaluation.problems}, {"samples", settings.evaluation.samples}, {"seed", settings.evaluation.seed}};
  return json;
}

}  // namespace lockstep

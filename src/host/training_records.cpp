#include "host/training_records.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

#include "base/error.h"

namespace lockstep {

TrainingJson to_json(const ModelSettings& s) {
  TrainingJson json{{"base_model", s.base_model},
                    {"rank", s.rank},
                    {"alpha", s.alpha},
                    {"train_attn", s.train_attn},
                    {"train_mlp", s.train_mlp},
                    {"train_unembed", s.train_unembed},
                    {"base_only", s.base_only},
                    {"optimizer", s.optimizer},
                    {"init_method", s.init_method},
                    {"user_metadata", s.user_metadata.value()}};
  if (s.seed) json["seed"] = *s.seed;
  return json;
}
ModelSettings model_settings_of(const TrainingJson& json) {
  ModelSettings s;
  s.base_model = json.at("base_model");
  s.rank = json.at("rank");
  s.alpha = json.at("alpha");
  s.train_attn = json.at("train_attn");
  s.train_mlp = json.at("train_mlp");
  s.train_unembed = json.at("train_unembed");
  s.base_only = json.at("base_only");
  s.optimizer = json.at("optimizer");
  s.user_metadata = ClientJson(json.at("user_metadata"));
  s.init_method = json.value("init_method", "kaiming");
  if (json.contains("seed")) s.seed = json["seed"].get<std::uint64_t>();
  return s;
}

TrainingJson to_json(const SessionRecord& r) {
  return {{"id", r.id},
          {"owner", r.owner},
          {"project", r.project},
          {"display_name", r.display_name},
          {"status", r.status},
          {"finish_detail", r.finish_detail},
          {"created", r.created},
          {"seen", r.seen},
          {"tags", r.tags.value()},
          {"user_metadata", r.user_metadata.value()},
          {"idempotency_key", r.idempotency_key},
          {"job", r.job}};
}
SessionRecord session_record(const TrainingJson& j) {
  return {j.at("id"),
          j.at("owner"),
          j.at("project"),
          j.at("display_name"),
          j.at("status"),
          j.at("finish_detail"),
          j.at("created"),
          j.at("seen"),
          ClientJson(j.at("tags")),
          ClientJson(j.at("user_metadata")),
          j.at("idempotency_key"),
          j.value("job", "")};
}

TrainingJson to_json(const ModelRecord& r) {
  return {{"id", r.id},
          {"session", r.session},
          {"owner", r.owner},
          {"number", r.number},
          {"settings", to_json(r.settings)},
          {"created", r.created},
          {"used", r.used},
          {"next_sequence", r.next_sequence},
          {"steps", r.steps},
          {"open_gradients", r.open_gradients},
          {"changed", r.changed},
          {"declares", r.declares}};
}
ModelRecord model_record(const TrainingJson& j) {
  return {j.at("id"),
          j.at("session"),
          j.at("owner"),
          j.at("number"),
          model_settings_of(j.at("settings")),
          j.at("created"),
          j.at("used"),
          j.at("next_sequence"),
          j.at("steps"),
          j.at("open_gradients"),
          j.at("changed"),
          j.value("declares", false)};
}

std::string CheckpointRecord::reference() const { return run().empty() ? name : fmt::format("{}/{}/{}", kTrainingAccount, run(), name); }

TrainingJson to_json(const CheckpointRecord& r) {
  TrainingJson json{{"model", r.model},
                    {"owner", r.owner},
                    {"kind", r.kind},
                    {"name", r.name},
                    {"settings", to_json(r.settings)},
                    {"created", r.created},
                    {"bytes", r.bytes},
                    {"steps", r.steps},
                    {"optimizer", r.optimizer},
                    {"public", r.is_public},
                    {"user_metadata", r.user_metadata.value()},
                    {"session", r.session},
                    {"type", r.type},
                    {"profile", r.profile},
                    {"job", r.job},
                    {"project", r.project},
                    {"snapshot", r.snapshot},
                    {"channel", r.channel}};
  if (r.expires) json["expires"] = *r.expires;
  return json;
}
CheckpointRecord checkpoint_record(const TrainingJson& j) {
  CheckpointRecord r{j.at("model"),
                     j.at("owner"),
                     j.at("kind"),
                     j.at("name"),
                     model_settings_of(j.at("settings")),
                     j.at("created"),
                     std::nullopt,
                     j.at("bytes"),
                     j.at("steps"),
                     j.at("optimizer"),
                     j.at("public"),
                     ClientJson(j.at("user_metadata")),
                     j.value("session", ""),
                     j.value("type", ""),
                     j.value("profile", ""),
                     j.value("job", ""),
                     j.value("project", ""),
                     j.value("snapshot", ""),
                     j.value("channel", "")};
  if (j.contains("expires")) r.expires = j["expires"].get<double>();
  return r;
}

TrainingJson to_json(const SamplerRecord& r) {
  return {{"id", r.id},
          {"session", r.session},
          {"owner", r.owner},
          {"base_model", r.base_model},
          {"model_path", r.model_path},
          {"inflight_model", r.inflight_model},
          {"spilled", r.spilled},
          {"snapshot", r.snapshot},
          {"settings", to_json(r.settings)}};
}
SamplerRecord sampler_record(const TrainingJson& j) {
  ModelSettings settings = model_settings_of(j.at("settings"));
  settings.user_metadata = {};  // an older version wrote it
  return {settings,
          j.at("id"),
          j.at("session"),
          j.at("owner"),
          j.at("base_model"),
          j.at("model_path"),
          j.at("inflight_model"),
          j.at("spilled"),
          j.value("snapshot", false)};
}

void check_ttl(const std::optional<double>& seconds) {
  constexpr double kHour = 3600, kTenYears = 10 * 366 * 86400.0;
  if (seconds && !(*seconds >= kHour && *seconds <= kTenYears))
    fail(ErrorCode::invalid_argument, "ttl_seconds is {}, allowed is {} (an hour) to {} (ten years)", *seconds, kHour, kTenYears);
}

void check_short_text(const std::string& field, const std::string& text) {
  constexpr std::size_t kLongest = 4096;
  if (text.size() > kLongest) fail(ErrorCode::invalid_argument, "{} has {} bytes, allowed are {}", field, text.size(), kLongest);
}

double unix_now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::string folder_of_id(const std::string& id) {
  std::string name = id;
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
}

std::string iso_time(double unix_seconds) {
  const auto whole = static_cast<std::time_t>(std::floor(unix_seconds));
  std::tm parts{};
  gmtime_r(&whole, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min,
                     parts.tm_sec, static_cast<int>((unix_seconds - std::floor(unix_seconds)) * 1000));
}

}  // namespace lockstep

#include "serving/gate_reports.h"

#include <tuple>
#include <utility>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace lockstep {
namespace {
constexpr std::int64_t kMostGates = std::int64_t{1} << 53;

// The reports of a file, and the number of the next one.
std::pair<std::deque<nlohmann::ordered_json>, std::int64_t> read_reports(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(file, error))) return {std::deque<nlohmann::ordered_json>(), 1};
  const std::string text = read_file(file, GateReports::kMostBytes);
  const nlohmann::ordered_json json = read_json_or_null(text, {.depth = 16});
  const auto part = [&](const char* name) { return json.is_object() && json.contains(name) ? json[name] : nlohmann::ordered_json(); };
  const nlohmann::ordered_json next = part("next"), rows = part("reports");
  bool right =
      next.is_number_integer() && next.get<std::int64_t>() > 0 && next.get<std::int64_t>() < kMostGates && rows.is_array() && rows.size() <= GateReports::kMost;
  for (const nlohmann::ordered_json& row : rows) right = right && row.is_object() && row.contains("id") && row["id"].is_string();
  if (!right)
    fail(ErrorCode::corrupt_file, "'{}' is damaged: it holds no reports of gates; put an earlier copy of it there, or delete it, and the reports are lost",
         file.string());
  return {std::deque<nlohmann::ordered_json>(rows.begin(), rows.end()), next.get<std::int64_t>()};
}
}  // namespace

GateReports::GateReports(std::filesystem::path file) : file_(std::move(file)) {
  if (!file_.empty()) std::tie(reports_, next_) = read_reports(file_);
}

std::string GateReports::add(const nlohmann::ordered_json& report) {
  const std::lock_guard lock(mutex_);
  nlohmann::ordered_json kept = nlohmann::ordered_json::object();
  kept["id"] = fmt::format("gate-{}", next_++);
  kept.update(report);
  const std::string id = kept["id"].get<std::string>();
  reports_.push_back(std::move(kept));
  if (reports_.size() > kMost) reports_.pop_front();
  keep(id);
  return id;
}

void GateReports::overruled(const std::string& id) {
  const std::lock_guard lock(mutex_);
  for (nlohmann::ordered_json& one : reports_)
    if (one["id"] == id) {
      one["forced"] = true;
      keep(id);
    }
}

void GateReports::keep(const std::string& id) const {
  if (file_.empty()) return;
  const nlohmann::ordered_json json{{"next", next_}, {"reports", reports_}};
  try {
    write_file_atomic(file_, json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  } catch (const Error& e) {
    log_error("a gate's report is not kept over a restart", {{"gate", id}, {"reason", e.what()}});
  }
}

std::vector<nlohmann::ordered_json> GateReports::list() const {
  const std::lock_guard lock(mutex_);
  return std::vector<nlohmann::ordered_json>(reports_.rbegin(), reports_.rend());
}

std::optional<nlohmann::ordered_json> GateReports::find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  for (const nlohmann::ordered_json& one : reports_)
    if (one["id"] == id) return one;
  return std::nullopt;
}

}  // namespace lockstep

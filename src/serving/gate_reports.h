// The latest reports of gates, saved to a file where one is given, so that one can see why a version is live or was refused. Any thread; one object a
// file.
//   GateReports reports("deploy-state/gates.json");   const std::string id = reports.add(json);   reports.find(id)
#pragma once
#include <cstdint>
#include <deque>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class GateReports {
 public:
  static constexpr std::size_t kMost = 100, kMostBytes = std::size_t{16} << 20;

  // `file`: empty: in memory alone. Error corrupt_file for one that this class did not write, with what to do.
  explicit GateReports(std::filesystem::path file = {});
  // Stores the report as {"id": "gate-7", ...} and returns the id. A write error is logged, and the report stays in memory.
  std::string add(const nlohmann::ordered_json& report);
  // Its alias was moved although the gate failed: sets "forced". No effect when the report was dropped.
  void overruled(const std::string& id);
  std::vector<nlohmann::ordered_json> list() const;  // the newest first
  std::optional<nlohmann::ordered_json> find(const std::string& id) const;

 private:
  void keep(const std::string& id) const;
  const std::filesystem::path file_;
  mutable std::mutex mutex_;  // of all below, and of the file
  std::deque<nlohmann::ordered_json> reports_;
  std::int64_t next_ = 1;
};

}  // namespace lockstep

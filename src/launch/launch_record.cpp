#include "launch/launch_record.h"

#include <chrono>
#include <fstream>

#include "base/log.h"

namespace lockstep {

void LaunchRecord::add(const std::string& event, nlohmann::ordered_json fields) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  nlohmann::ordered_json line = {{"time", now}, {"event", event}};
  line.update(fields);
  waiting_ += line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  write();
}

void LaunchRecord::write() {
  if (waiting_.empty() || (file_.empty() && !RunProgress(run_).begun())) return;
  const std::filesystem::path path = file_.empty() ? run_ / "launch.jsonl" : file_;
  std::ofstream out(path, std::ios::app);
  out << waiting_ << std::flush;
  if (!out && !warned_) log_warning("the launch's record cannot be written", {{"path", path.string()}});
  warned_ = warned_ || !out;
  waiting_.clear();
}

}  // namespace lockstep

#include "runs/run_ranks.h"

#include <algorithm>
#include <string>

#include "base/bounded_json.h"
#include "base/server_paths.h"
#include "parallel/layout.h"
#include "runs/run_file.h"

namespace lockstep {

namespace {
constexpr std::int64_t kMostTail = 256 << 10;
constexpr std::size_t kMostStarts = 100, kMostHosts = 64, kMostText = 400;

// The last lines of a file that are whole.
std::string tail_of(const RunFile& file) {
  const std::int64_t begin = std::max<std::int64_t>(0, file.size() - kMostTail);
  std::string text = file.read(begin, kMostTail);
  if (begin > 0) text.erase(0, text.find('\n') == std::string::npos ? text.size() : text.find('\n') + 1);
  return text;
}

// The field as it is, if it is a number, or as a text of bounded length without paths; else null.
Json plain_field(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end()) return nullptr;
  if (found->is_number()) return *found;
  if (found->is_string()) return without_server_paths(found->get<std::string>().substr(0, kMostText));
  return nullptr;
}

Json fields_of(const Json& json, std::initializer_list<const char*> names) {
  Json fields = Json::object();
  for (const char* name : names) fields[name] = plain_field(json, name);
  return fields;
}

// The objects of a field that is a list, each with these fields.
Json objects_of(const Json& json, const char* name, std::size_t most, std::initializer_list<const char*> names) {
  Json all = Json::array();
  const auto found = json.find(name);
  if (found == json.end() || !found->is_array()) return all;
  for (const Json& one : *found)
    if (one.is_object() && all.size() < most) all.push_back(fields_of(one, names));
  return all;
}

void take_event(const Json& event, Json& starts) {
  const Json name = plain_field(event, "event");
  if (name == "start") {
    Json start = fields_of(event, {"start", "time", "ranks", "processes", "step"});
    start["hosts"] = objects_of(event, "hosts", kMostHosts, {"name", "slots"});
    for (const char* later : {"seconds", "loss", "taken_back", "end"}) start[later] = nullptr;
    starts.push_back(std::move(start));
    if (starts.size() > kMostStarts) starts.erase(0);
    return;
  }
  if (starts.empty()) return;
  Json& now = starts.back();
  if (name == "step") now["seconds"] = plain_field(event, "seconds");
  if (name == "loss") now["loss"] = fields_of(event, {"words", "host", "process", "step", "saved_step"});
  if (name == "take_back") {
    now["taken_back"] = Json::array();
    if (const auto hosts = event.find("hosts"); hosts != event.end() && hosts->is_array())
      for (const Json& host : *hosts)
        if (host.is_string() && now["taken_back"].size() < kMostHosts) now["taken_back"].push_back(host.get<std::string>().substr(0, kMostText));
  }
  if (name == "end") {
    const Json error = plain_field(event, "error"), status = plain_field(event, "status");
    now["end"] = error.is_null() ? (status == 0 ? Json("finished") : Json("ended with status " + status.dump())) : error;
    if (event.contains("stopped") && event["stopped"] == true) now["end"] = "stopped";
  }
}
}  // namespace

Json run_ranks(const std::filesystem::path& run) {
  Json told{{"step", nullptr}, {"ranks", Json::array()}, {"starts", Json::array()}};
  if (const RunFile metrics(run / "metrics.jsonl"); metrics) {
    const std::string text = tail_of(metrics);
    std::string_view last;
    for_each_line(text, [&](std::string_view line) { last = line; });
    if (const Json line = read_json_or_null(last); line.is_object()) {
      told["ranks"] = objects_of(line, "ranks_each", std::size_t{kMostRanks},
                                 {"rank", "process", "host", "computed_seconds", "waited_seconds", "sent_seconds", "sent_bytes"});
      told["step"] = plain_field(line, "step");
    }
  }
  if (const RunFile record(run / "launch.jsonl"); record) {
    const std::string text = tail_of(record);
    for_each_line(text, [&](std::string_view line) {
      if (const Json event = read_json_or_null(line); event.is_object()) take_event(event, told["starts"]);
    });
  }
  return told;
}

}  // namespace lockstep

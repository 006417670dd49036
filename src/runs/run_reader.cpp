#include "runs/run_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "base/bounded_json.h"
#include "base/error.h"
#include "checkpoint/run_directory.h"
#include "runs/metrics_columns.h"
#include "runs/run_file.h"
#include "runs/run_ranks.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {
constexpr std::int64_t kMostConfig = 4 << 20, kTail = 64 << 10, kMostTranscriptBytes = 256 << 20;
constexpr std::size_t kMostEntries = 20000;  // of a folder that is looked through

// As a listing can say it: bytes that are no UTF-8 become U+FFFD. Empty for a hidden folder, which is no run.
std::string shown_name(const std::string& folder) {
  if (folder.empty() || folder[0] == '.') return {};
  return Json::parse(Json(folder).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

bool is_arm_name(const std::string& name) {
  try {
    check_run_name(name);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// The arm of "metrics-ARM.jsonl" or of "metrics.jsonl"; none for other files.
std::optional<std::string> arm_of(const std::string& file) {
  constexpr std::string_view stem = "metrics", end = ".jsonl";
  if (!file.starts_with(stem) || !file.ends_with(end) || file.size() < stem.size() + end.size()) return std::nullopt;
  const std::string arm = file.substr(stem.size(), file.size() - stem.size() - end.size());
  if (arm.empty()) return arm;
  if (arm[0] != '-' || !is_arm_name(arm.substr(1))) return std::nullopt;
  return arm.substr(1);
}

// An object of a file, or null: it may be half written, or something else.
Json read_object(const fs::path& path) {
  const RunFile file(path);
  if (!file || file.size() > kMostConfig) return nullptr;
  Json json = read_json_or_null(file.read(0, file.size()));
  return json.is_object() ? json : Json(nullptr);
}

std::int64_t integer_text(const Json& json, const char* key) {
  if (!json.is_object() || !json.contains(key)) return 0;
  if (json[key].is_number_integer()) return json[key].get<std::int64_t>();
  std::int64_t value = 0;
  if (!json[key].is_string()) return 0;
  const std::string& text = json[key].get_ref<const std::string&>();
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// The numbers of the last whole line.
Json last_numbers(const RunFile& file) {
  const std::int64_t begin = std::max<std::int64_t>(0, file.size() - kTail);
  const std::string text = file.read(begin, kTail);
  std::string_view last;
  for_each_line(text, [&](std::string_view line) { last = line; });
  Json numbers = Json::object();
  read_numbers(last, [&](std::string_view key, double value) {
    if (numbers.size() < RunReader::kMostColumns) numbers[std::string(key)] = value;
  });
  return numbers;
}

// The step of a line: at once where it begins as ours do, else by reading all of it.
std::optional<std::int64_t> step_of(std::string_view line) {
  constexpr std::string_view begin = "{\"step\":";
  std::int64_t step = 0;
  if (line.starts_with(begin)) {
    const auto end = std::from_chars(line.data() + begin.size(), line.data() + line.size(), step);
    if (end.ec == std::errc() && end.ptr != line.data() + line.size() && (*end.ptr == ',' || *end.ptr == '}')) return step;
  }
  const bool whole = read_numbers(line, [&](std::string_view key, double value) {
    if (key == "step" && std::abs(value) < 9e15) step = static_cast<std::int64_t>(value);
  });
  return whole ? std::optional(step) : std::nullopt;
}

template <class F>
void for_each_transcript(const fs::path& newer, F&& use) {
  fs::path older = newer;
  older.replace_extension(".1.jsonl");
  for (const fs::path& path : {older, newer}) {
    const RunFile file(path);
    if (!file) continue;
    // In pieces: both halves of a big log need not stand in memory.
    std::string text;
    for (std::int64_t at = 0; at < std::min(file.size(), kMostTranscriptBytes); at += kTail * 16) {
      text += file.read(at, kTail * 16);
      text.erase(0, for_each_line(text, use));
      if (static_cast<std::int64_t>(text.size()) > RunReader::kMostBytes) text.clear();  // a line that never ends
    }
  }
}
}  // namespace

std::vector<RunReader::Run> RunReader::runs() const {
  std::vector<Run> found;
  std::set<std::string> names;
  const auto add = [&](const fs::path& path, std::string name) {
    name = shown_name(name);
    if (name.empty()) return;
    Run run{name, path, {}, 0};
    std::error_code error;
    bool config = false;
    std::size_t seen = 0;
    for (fs::directory_iterator entry(path, error), end; !error && entry != end && ++seen < kMostEntries; entry.increment(error)) {
      const std::string file = entry->path().filename().string();
      config = config || file == "config.json";
      if (const auto arm = arm_of(file); arm && run.arms.size() < 16) run.arms.push_back(*arm);
    }
    if (run.arms.empty() && !config) return;
    std::sort(run.arms.begin(), run.arms.end());
    for (const std::string& arm : run.arms)
      if (const RunFile file(arm_file(run, "metrics", arm)); file) run.updated = std::max(run.updated, file.modified());
    if (run.updated == 0)
      if (const RunFile file(path / "config.json"); file) run.updated = file.modified();
    // Two folders of one name: the later one is called name-2.
    for (int n = 2; names.contains(run.name); ++n) run.name = fmt::format("{}-{}", name, n);
    names.insert(run.name);
    found.push_back(std::move(run));
  };
  std::error_code error;
  for (const fs::path& path : places_.runs) {
    const fs::path absolute = fs::weakly_canonical(path, error);
    add(path, (error ? path : absolute).filename().string());
  }
  for (const fs::path& root : places_.roots) {
    std::vector<std::string> folders;
    for (fs::directory_iterator entry(root, error), end; !error && entry != end && folders.size() < kMostEntries; entry.increment(error))
      if (std::error_code ignored; entry->is_directory(ignored)) folders.push_back(entry->path().filename().string());
    std::sort(folders.begin(), folders.end());  // names of equals do not depend on the disk's order
    for (const std::string& folder : folders) add(root / folder, folder);
  }
  std::stable_sort(found.begin(), found.end(), [](const Run& a, const Run& b) { return a.updated > b.updated; });
  if (found.size() > kMostRuns) found.resize(kMostRuns);
  return found;
}

RunReader::Run RunReader::find(const std::string& name) const {
  std::vector<std::string> names;
  for (Run& run : runs()) {
    if (run.name == name) return std::move(run);
    names.push_back(run.name);
  }
  fail(ErrorCode::not_found, "there is no run '{}'{}", name.substr(0, 110), did_you_mean(name, names));
}

fs::path RunReader::arm_file(const Run& run, const char* stem, const std::string& arm) const {
  if (std::find(run.arms.begin(), run.arms.end(), arm) == run.arms.end())
    fail(ErrorCode::not_found, "the run '{}' has no arm '{}'{}", run.name, arm.substr(0, 110), did_you_mean(arm, run.arms));
  return run.path / fmt::format("{}{}{}.jsonl", stem, arm.empty() ? "" : "-", arm);
}

Json RunReader::list() const {
  Json list = Json::array();
  for (const Run& run : runs()) {
    Json arms = Json::array();
    Json last = Json::object();
    for (const std::string& arm : run.arms) {
      const RunFile file(arm_file(run, "metrics", arm));
      if (!file) continue;
      const Json numbers = last_numbers(file);
      if (arm == run.arms.front() || numbers.value("step", 0.0) > last.value("step", 0.0)) last = numbers;
      arms.push_back({{"name", arm}, {"bytes", file.size()}, {"transcripts", static_cast<bool>(RunFile(arm_file(run, "transcripts", arm)))}});
    }
    const Json config = read_object(run.path / "config.json");
    Json entry{{"name", run.name}, {"arms", std::move(arms)}, {"updated", run.updated}};
    entry["live"] = run.name == places_.live || is_locked(run.path / "lock");
    entry["steps"] = integer_text(config, "steps");
    entry["last"] = std::move(last);
    list.push_back(std::move(entry));
  }
  return {{"runs", std::move(list)}};
}

Json RunReader::about(const std::string& name) const {
  const Run run = find(name);
  Json parity = read_object(run.path / "parity.json");
  if (parity.is_null() && places_.parity) parity = read_object(*places_.parity);
  return {
      {"name", run.name}, {"config", read_object(run.path / "config.json")}, {"result", read_object(run.path / "result.json")}, {"parity", std::move(parity)}};
}

Json RunReader::ranks(const std::string& name) const { return run_ranks(find(name).path); }

Json RunReader::metrics(const std::string& name, const std::string& arm, const MetricsFrom& from) const {
  if (from.from < 0) fail(ErrorCode::invalid_argument, "from is {}, allowed is 0 or more", from.from);
  if (from.points < 10 || from.points > kMostPoints) fail(ErrorCode::invalid_argument, "points is {}, allowed is 10 to {}", from.points, kMostPoints);
  const Run run = find(name);
  const RunFile file(arm_file(run, "metrics", arm));
  if (!file) fail(ErrorCode::not_found, "the run '{}' has no numbers yet", run.name);
  const bool same = from.file == file.identity() && from.from <= file.size();
  const std::int64_t begin = same ? from.from : 0, bytes = file.size() - begin;
  MetricsColumns columns(kMostColumns);
  std::int64_t next = begin;
  bool sampled = false;
  if (bytes <= kMostBytes) {
    const std::string text = file.read(begin, bytes);
    const auto lines = static_cast<std::int64_t>(std::count(text.begin(), text.end(), '\n'));
    const std::int64_t parts = lines > from.points ? from.points / 2 : 0;  // two values per part
    std::int64_t index = 0;
    next += static_cast<std::int64_t>(for_each_line(text, [&](std::string_view line) { columns.add(line, parts > 0 ? index++ * parts / lines : -1); }));
  } else {
    sampled = true;
    const std::int64_t parts = from.points / 2, piece = kMostBytes / parts;
    for (std::int64_t part = 0; part < parts; ++part) {
      const std::int64_t at = begin + static_cast<std::int64_t>(static_cast<double>(bytes) * static_cast<double>(part) / static_cast<double>(parts));
      std::string text = file.read(at, piece);
      if (part > 0) text.erase(0, text.find('\n') == std::string::npos ? text.size() : text.find('\n') + 1);  // a line begins somewhere
      for_each_line(text, [&](std::string_view line) { columns.add(line, part); });
    }
    const std::string tail = file.read(file.size() - kTail, kTail);
    const std::size_t last = tail.rfind('\n');
    next = last == std::string::npos ? file.size() : file.size() - static_cast<std::int64_t>(tail.size() - last - 1);
  }
  return {{"file", file.identity()},
          {"from", begin},
          {"next", next},
          {"lines", columns.lines()},
          {"bad_lines", columns.bad_lines()},
          {"thinned", sampled || columns.lines() > from.points},
          {"columns", columns.take()}};
}

Json RunReader::transcript_steps(const std::string& name, const std::string& arm) const {
  const Run run = find(name);
  std::set<std::int64_t> steps;
  for_each_transcript(arm_file(run, "transcripts", arm), [&](std::string_view line) {
    if (const auto step = step_of(line)) steps.insert(*step);
  });
  return {{"steps", steps}};
}

Json RunReader::transcripts(const std::string& name, const std::string& arm, std::int64_t step) const {
  const Run run = find(name);
  Json entries = Json::array();
  for_each_transcript(arm_file(run, "transcripts", arm), [&](std::string_view line) {
    if (entries.size() >= kMostTranscripts || step_of(line) != step || line.size() > (8u << 20)) return;
    Json entry = read_json_or_null(line);
    if (entry.is_object()) entries.push_back(std::move(entry));
  });
  return {{"step", step}, {"entries", std::move(entries)}};
}

}  // namespace lockstep

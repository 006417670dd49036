#define TOML_ENABLE_FORMATTERS 0
#include "jobs/teacher_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cstdlib>

#include "base/choice.h"
#include "base/error.h"
#include "base/file.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostBytes = std::size_t{1} << 20, kMostTeachers = 256;
const std::vector<std::string> kKeys = {"name", "folder",   "adapter", "checkpoint", "domains", "weight",         "url", "model", "key",
                                        "send", "logprobs", "failed",  "at_once",    "tries",   "timeout_seconds"};
const std::vector<std::string> kFarKeys = {"model", "key", "send", "logprobs", "failed", "at_once", "tries", "timeout_seconds"};

[[noreturn]] void fault(const toml::node& at, const std::string& what) { fail(ErrorCode::invalid_argument, "line {}: {}", at.source().begin.line, what); }

TeacherSettings teacher_of(const toml::node& node, const std::filesystem::path& beside) {
  const toml::table* table = node.as_table();
  if (!table) fault(node, "a teacher is no table, allowed is [[teacher]]");
  TeacherSettings teacher;
  const auto text = [&](const char* key) -> std::string {
    const toml::node* value = table->get(key);
    if (!value) return {};
    if (!value->is_string()) fault(*value, fmt::format("'{}' is no text", key));
    return value->as_string()->get();
  };
  const auto folder = [&](const char* key) {
    const std::string path = text(key);
    return path.empty() || std::filesystem::path(path).is_absolute() ? path : (beside / path).lexically_normal().string();
  };
  teacher.name = text("name");
  teacher.folder = folder("folder");
  teacher.adapter = folder("adapter");
  teacher.checkpoint = folder("checkpoint");
  if (const toml::node* weight = table->get("weight")) {
    const auto number = weight->value<double>();
    if (!number) fault(*weight, "'weight' is no number");
    teacher.weight = *number;
  }
  if (const toml::node* domains = table->get("domains")) {
    if (!domains->is_array()) fault(*domains, "'domains' is no list of texts");
    for (const toml::node& one : *domains->as_array()) {
      if (!one.is_string()) fault(one, "'domains' is no list of texts");
      teacher.domains.push_back(one.as_string()->get());
    }
  }
  for (const auto& [key, value] : *table)
    if (std::find(kKeys.begin(), kKeys.end(), key.str()) == kKeys.end())
      fault(value, fmt::format("unknown key '{}', {}", std::string(key.str()).substr(0, 60), allowed_are(key.str(), kKeys)));
  const auto one_of = [&](const char* key, std::string& value, const std::vector<std::string>& allowed) {
    if (!table->get(key)) return;
    value = text(key);
    if (std::find(allowed.begin(), allowed.end(), value) == allowed.end())
      fault(*table->get(key), fmt::format("'{}' is '{}', {}", key, value, allowed_are(value, allowed)));
  };
  const auto number = [&](const char* key, auto& value, auto low, auto high) {
    const toml::node* found = table->get(key);
    if (!found) return;
    const auto read = found->value<std::remove_reference_t<decltype(value)>>();
    if (!read || !(*read >= low && *read <= high)) fault(*found, fmt::format("'{}' is no number from {} to {}", key, low, high));
    value = *read;
  };
  teacher.url = text("url");
  teacher.model = text("model");
  one_of("send", teacher.send, {"text", "ids"});
  one_of("logprobs", teacher.logprobs, {"echo", "prompt_logprobs"});
  one_of("failed", teacher.failed, {"drop", "wait"});
  number("at_once", teacher.at_once, std::int64_t{1}, std::int64_t{256});
  number("tries", teacher.tries, std::int64_t{1}, std::int64_t{100});
  number("timeout_seconds", teacher.timeout_seconds, 1.0, 86400.0);
  if (const std::string variable = text("key"); !variable.empty()) {
    const char* value = std::getenv(variable.c_str());
    if (!value || !*value)
      fault(*table->get("key"), fmt::format("'key' is '{}', and no variable of that name is set; it names the one that holds the API key", variable));
    teacher.key = value;
  }
  if (!teacher.is_far())
    for (const std::string& key : kFarKeys)
      if (const toml::node* found = table->get(key)) fault(*found, fmt::format("'{}' without 'url', allowed is it with one", key));
  if (teacher.is_far() && teacher.model.empty()) fault(node, "a teacher with a url has no model, allowed is the name that it is called by there");
  if (!teacher.is_far() && teacher.folder.empty() && teacher.adapter.empty() && teacher.checkpoint.empty())
    fault(node, "a teacher has no folder, no adapter, no checkpoint and no url, allowed is one");
  return teacher;
}
}  // namespace

std::vector<TeacherSettings> read_teacher_file(const std::filesystem::path& path) {
  return with_context(fmt::format("reading '{}'", path.string()), [&] {
    const std::string content = read_file(path, kMostBytes);
    toml::table root;
    try {
      root = toml::parse(content);
    } catch (const toml::parse_error& e) {
      fail(ErrorCode::invalid_argument, "line {}, column {}: {}", e.source().begin.line, e.source().begin.column, e.description());
    }
    std::vector<TeacherSettings> teachers;
    for (const auto& [key, node] : root) {
      if (key.str() != "teacher" || !node.is_array())
        fault(node, fmt::format("unknown key '{}', allowed are tables [[teacher]]", std::string(key.str()).substr(0, 60)));
      for (const toml::node& one : *node.as_array()) teachers.push_back(teacher_of(one, path.parent_path()));
    }
    if (teachers.empty() || teachers.size() > kMostTeachers)
      fail(ErrorCode::invalid_argument, "it has {} tables [[teacher]], allowed are 1 to {}", teachers.size(), kMostTeachers);
    return teachers;
  });
}

}  // namespace lockstep
